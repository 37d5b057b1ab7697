//! The configurations. Each looks at one way in which things go wrong; together they are the
//! bounded space of docs/proof.md.

use rejoin_core::settings::{Delivery, OnRepeat};

use crate::config::{Config, Effect, Faults, Intent, Network};

/// Time is not bounded: it ends by itself, when no deadline and no window is left.
const ALWAYS: Faults = Faults {
    closes: 0,
    cuts: 0,
    fins: 0,
    resets: 0,
    crashes: 0,
    power_cuts: 0,
    wipes: 0,
    deaths: 0,
    passes: u8::MAX,
    progress: 0,
    windows: false,
    slow_review: false,
    after_reading: false,
};

/// One call, posted again once; the client may close, the path may die.
pub fn retry() -> Config {
    let faults = Faults { closes: 1, cuts: 1, ..ALWAYS };
    Config::new("retry", "one call, repeated once", &[Intent::once(0).posts(2)], faults)
}

/// As `retry`, twice.
pub fn retries() -> Config {
    let faults = Faults { closes: 1, cuts: 1, ..ALWAYS };
    Config::new("retries", "one call, repeated twice", &[Intent::once(0).posts(3)], faults)
}

/// One call with progress, resumed or repeated.
pub fn resume_or_retry() -> Config {
    let faults = Faults { closes: 1, cuts: 1, progress: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).gets(1)];
    Config::new("resume or retry", "one call with progress, resumed and repeated", &intents, faults)
}

/// Two equal calls that are both meant.
pub fn twins() -> Config {
    let intents = [Intent::once(0), Intent::once(0)];
    Config::new("twins", "two equal calls, both meant, nothing goes wrong", &intents, ALWAYS)
}

/// Twins, one of which is repeated.
pub fn twins_retry() -> Config {
    let faults = Faults { cuts: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2), Intent::once(0)];
    Config::new("twins, retry", "two equal calls, one path dies, one is repeated", &intents, faults)
}

/// A client that resumes and asks something else meanwhile.
pub fn other_call() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents = [Intent::once(0).gets(1), Intent::once(1)];
    Config::new(
        "other call",
        "one call is lost and resumed, another comes meanwhile",
        &intents,
        faults,
    )
}

/// The same over a path that dies.
pub fn other_call_cut() -> Config {
    let faults = Faults { cuts: 1, ..ALWAYS };
    let intents = [Intent::once(0).gets(1), Intent::once(1)];
    Config::new("other call, cut", "as `other call`, over a path that dies", &intents, faults)
}

/// A repeating client beside another call.
pub fn retry_and_other() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2), Intent::once(1)];
    Config::new(
        "retry, other call",
        "one call is repeated, another comes meanwhile",
        &intents,
        faults,
    )
}

/// The gateway is killed.
pub fn crash() -> Config {
    let faults = Faults { closes: 1, crashes: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).gets(1)];
    Config::new("crash", "the gateway is killed and started again", &intents, faults)
}

/// The same, asked again after the loss of the server's state was told.
pub fn crash_retries() -> Config {
    let faults = Faults { closes: 1, crashes: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(3)];
    Config::new(
        "crash, retries",
        "the gateway is killed; the call is repeated twice",
        &intents,
        faults,
    )
}

/// The power is cut: what had not to be synced is lost.
pub fn power_cut() -> Config {
    let faults = Faults { closes: 1, power_cuts: 1, progress: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).gets(1)];
    Config::new("power cut", "the power is cut; what was not synced is lost", &intents, faults)
}

/// The power is cut when numbers are reserved already: only the claim itself must be synced.
pub fn power_cut_later() -> Config {
    let faults = Faults { closes: 1, power_cuts: 1, ..ALWAYS };
    let intents = [Intent::once(1), Intent::once(0).after_previous().posts(3)];
    Config::new("power cut, later", "as `power cut`, in the second call", &intents, faults)
}

/// The server dies.
pub fn death() -> Config {
    let faults = Faults { closes: 1, deaths: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(3)];
    Config::new("server dies", "the server dies in a call, which is repeated", &intents, faults)
}

/// The server dies, another call follows.
pub fn state_lost() -> Config {
    let faults = Faults { deaths: 1, ..ALWAYS };
    let intents = [Intent::once(0), Intent::once(1).posts(2)];
    Config::new("state lost", "the server dies, and another call comes", &intents, faults)
}

/// A client with a time limit of its own.
pub fn cancel() -> Config {
    let intents = [Intent::once(0).posts(2).cancels()];
    let faults = Faults { closes: 1, ..ALWAYS };
    Config::new(
        "cancel",
        "a call is cancelled and repeated; its result may come late",
        &intents,
        faults,
    )
}

/// One call with a token.
pub fn token() -> Config {
    let faults = Faults { closes: 1, cuts: 1, ..ALWAYS };
    Config::new("token", "one call with a token", &[Intent::once(0).posts(3).token(1)], faults)
}

/// A token and a cancel.
pub fn token_cancel() -> Config {
    let intents = [Intent::once(0).posts(2).token(1).cancels()];
    let faults = Faults { closes: 1, ..ALWAYS };
    Config::new("token, cancel", "a call with a token is cancelled and repeated", &intents, faults)
}

/// A token whose stream is lost after another call's was.
pub fn token_after_loss() -> Config {
    let faults = Faults { closes: 2, ..ALWAYS };
    let intents = [Intent::once(1), Intent::once(0).posts(2).token(1)];
    Config::new(
        "token, never resumes",
        "a call with a token is repeated by a client that has left a stream before",
        &intents,
        faults,
    )
}

/// Equal calls with tokens of their own.
pub fn token_twins() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents = [Intent::once(0).token(1).posts(2), Intent::once(0).token(2)];
    Config::new("token, twins", "two equal calls with tokens of their own", &intents, faults)
}

/// One token for two different calls: a mistake of the client.
pub fn token_reused() -> Config {
    let intents = [Intent::once(0).token(1), Intent::once(1).token(1)];
    let faults = Faults { closes: 1, ..ALWAYS };
    Config::new("token reused", "one token on two different calls", &intents, faults)
}

/// The ledger is lost together with the token.
pub fn token_forgotten() -> Config {
    let faults = Faults { closes: 1, wipes: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).token(1).counts_attempts()];
    Config::new(
        "token, ledger lost",
        "the gateway loses its store; the client repeats",
        &intents,
        faults,
    )
}

/// A deliberate second call after a first.
pub fn again() -> Config {
    let faults = Faults { fins: 1, resets: 1, ..ALWAYS };
    let intents = [Intent::once(0), Intent::once(0).after_previous()];
    Config::new(
        "again",
        "the same call once more, after its first answer was read",
        &intents,
        faults,
    )
}

/// A call that may run twice.
pub fn idempotent() -> Config {
    let faults = Faults { closes: 1, cuts: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).effect(Effect::Idempotent)];
    Config::new("idempotent", "a call that may run twice is repeated", &intents, faults)
}

/// A transport that sends the same bytes again.
pub fn resend() -> Config {
    let faults = Faults { closes: 1, cuts: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).resends()];
    Config::new("re-send", "the same bytes are sent again", &intents, faults)
}

/// What may be what unblocks a call.
pub fn ungated() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents = [Intent::once(0), Intent::once(1).effect(Effect::Ungated)];
    Config::new(
        "never gated",
        "a request that is never gated beside a lost stream",
        &intents,
        faults,
    )
}

/// What comes is looked at before what waits and could go on.
pub fn slow_review() -> Config {
    let faults = Faults { cuts: 1, slow_review: true, ..ALWAYS };
    let intents = [Intent::once(0).posts(2), Intent::once(0)];
    Config::new("slow review", "as `twins, retry`, and what comes is first", &intents, faults)
}

/// A call that runs for longer than the repeat window, which starts later than its stream's loss.
pub fn long_call() -> Config {
    let faults = Faults { closes: 1, windows: true, ..ALWAYS };
    let intents = [Intent::once(0).posts(2)];
    Config::new(
        "long call",
        "one call, repeated, until the repeat window is over",
        &intents,
        faults,
    )
}

/// The first observed case: a client has read a part, is cut off, and asks again.
pub fn observed_repeat() -> Config {
    let faults = Faults { closes: 1, progress: 1, after_reading: true, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).gets(1)];
    Config::new(
        "observed: repeat",
        "a client with a part of an answer asks again",
        &intents,
        faults,
    )
}

/// The second observed case: the same client resumes, and asks something else beside that.
pub fn observed_overtaking() -> Config {
    let faults = Faults { closes: 1, progress: 1, after_reading: true, ..ALWAYS };
    let intents = [Intent::once(0).gets(1), Intent::once(1)];
    Config::new(
        "observed: other call",
        "the same resumes and asks something else",
        &intents,
        faults,
    )
}

/// A client that acknowledges.
pub fn aware() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents =
        [Intent::once(0).posts(2).gets(1).acks(), Intent::once(0).after_previous().acks()];
    Config::new("aware", "a client that acknowledges, and asks the same again", &intents, faults)
}

/// Everything that is searched under the default settings on a direct path.
pub fn all() -> Vec<Config> {
    vec![
        retry(),
        retries(),
        resume_or_retry(),
        twins(),
        twins_retry(),
        other_call(),
        other_call_cut(),
        retry_and_other(),
        crash(),
        crash_retries(),
        power_cut(),
        power_cut_later(),
        death(),
        state_lost(),
        cancel(),
        token(),
        token_cancel(),
        token_after_loss(),
        token_twins(),
        token_reused(),
        token_forgotten(),
        again(),
        idempotent(),
        resend(),
        ungated(),
        aware(),
        long_call(),
        slow_review(),
        observed_repeat(),
        observed_overtaking(),
    ]
}

/// What is searched over paths that may do anything: the spaces are larger.
fn over_any_path() -> Vec<Config> {
    vec![
        retry(),
        twins(),
        crash(),
        death(),
        state_lost(),
        cancel(),
        again(),
        resend(),
        observed_repeat(),
        retries(),
    ]
}

/// Spaces of the same kind that take minutes each (`--large`).
pub fn large() -> Vec<Config> {
    let proved = |config: Config| config.delivery(Delivery::Proved).over(Network::Any);
    vec![proved(observed_overtaking()), proved(resume_or_retry()), proved(twins_retry())]
}

/// The sufficiency suite: the default on a direct path, slow or not; `delivery = "proved"` over any
/// network and behind a proxy; tokens behind a proxy; the other answers to repeats.
pub fn sufficiency() -> Vec<Config> {
    let mut configs = all();
    for config in all() {
        configs.push(config.delivery(Delivery::Proved).over(Network::Proxy).no_twins());
    }
    for config in [retry(), retries(), twins(), crash(), death(), cancel(), again(), other_call()] {
        configs.push(config.over(Network::Slow));
    }
    for config in over_any_path() {
        configs.push(config.delivery(Delivery::Proved).over(Network::Any));
    }
    for config in [token(), token_cancel()] {
        configs.push(config.over(Network::Any));
    }
    for config in [token(), token_cancel(), token_twins()] {
        configs.push(config.over(Network::Proxy));
    }
    for on_repeat in [OnRepeat::Join, OnRepeat::Reject] {
        for config in [retries(), observed_repeat(), cancel(), crash()] {
            configs.push(config.on_repeat(on_repeat));
        }
    }
    configs
}

/// What the default cannot see: a proxy acknowledges an answer and loses it.
pub fn swallowed() -> Config {
    let config = Config { name: "swallowed answer", ..retry() };
    config.over(Network::Proxy).no_twins()
}

/// What is not closed: a twin comes after the grace and collects the answer; then whoever was owed
/// it resumes, and repeats beside that. Two were asked and two run, but both for the first.
pub fn collected_by_twin() -> Config {
    let faults = Faults { closes: 1, ..ALWAYS };
    let intents = [Intent::once(0).posts(2).gets(1), Intent::once(0)];
    Config::new(
        "collected by a twin",
        "a twin collects the answer of a call, which is resumed and repeated",
        &intents,
        faults,
    )
}

/// What no setting but `twin_window_ms = 0` or a token can see: a proxy answers for a client that
/// has left, so its repeat is taken for a twin.
pub fn twin_behind_proxy() -> Config {
    let config = Config { name: "twin behind a proxy", ..retry() };
    config.over(Network::Proxy).delivery(Delivery::Proved)
}
