//! One run: everything that a seed stands for, from the first client to the last check.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::policy::Ablation;
use rejoin_store::MemoryLimits;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::child::Children;
use crate::client::{Client, Clients};
use crate::disk::Disk;
use crate::history::{History, Record, What};
use crate::host::{Behind, Host};
use crate::log;
use crate::net::Net;
use crate::plan::{Fault, Plan, Server};
use crate::random::Random;
use crate::tool::Tools;
use crate::web::Web;

/// Virtual time after which a run that goes on has failed.
const RUN_MAX: Duration = Duration::from_secs(1_800);

/// By then the server knows what the last client said.
const SETTLED: Duration = Duration::from_secs(6);

type Failed = Box<dyn std::error::Error>;

/// Runs a seed.
///
/// # Errors
/// If the run could not be set up: nothing is said about the gateway then.
pub fn run(
    seed: u64,
    without: Ablation,
    clock: Option<File>,
) -> Result<(Plan, Vec<Record>), Failed> {
    let plan = Plan::of(seed, without);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let records = runtime.block_on(async {
        let history = History::begin();
        log::to(history.clone());
        history.record(What::Plan(format!("{plan:#?}")));
        act(&plan, &history, clock).await?;
        Ok::<_, Failed>(history.records())
    })?;
    // What still runs of the gateway's lives is of no interest.
    runtime.shutdown_background();
    Ok((plan, records))
}

async fn act(plan: &Plan, history: &History, clock: Option<File>) -> Result<(), Failed> {
    let part = |number| Random::new(plan.seed, number);
    let settings = plan.settings();
    settings.limits.check()?;
    let net = Net::new(history.clone(), plan.pace, plan.proxy, part(2));
    let disk = Disk::new(MemoryLimits::from(&settings.limits), history.clone(), part(3))?;
    let tools = Tools::new(history.clone());
    let behind = match plan.server {
        Server::Child => Behind::Children(Children::new(tools, history.clone(), part(4))),
        Server::Web => Behind::Web(Web::new(tools, history.clone(), part(4))),
    };
    let host = Host::new(settings, net.clone(), disk, behind, history.clone(), clock);
    host.start(0).await?;
    let host = Arc::new(host);
    let clients = Clients::new(net, history.clone());
    let all: Vec<_> = plan
        .clients
        .iter()
        .enumerate()
        .map(|(number, plan)| Client::new(number, plan.clone(), Arc::clone(&clients)))
        .collect();
    let mut living: JoinSet<()> = all.iter().map(|client| Arc::clone(client).live()).collect();
    let living = async { while living.join_next().await.is_some() {} };
    let (in_time, faulted) = tokio::join!(timeout(RUN_MAX, living), go_wrong(plan, history, &host));
    faulted?;
    let mut probing: JoinSet<()> = all.iter().map(|client| Arc::clone(client).probe()).collect();
    let probing = async { while probing.join_next().await.is_some() {} };
    let in_time = in_time.is_ok() && timeout(RUN_MAX, probing).await.is_ok();
    // What was said last has its effect behind the gateway.
    sleep(SETTLED).await;
    history.record(What::Ended { in_time });
    Ok(())
}

/// Lets the faults of the plan happen, each in its time, and then all be well.
async fn go_wrong(plan: &Plan, history: &History, host: &Arc<Host>) -> Result<(), Failed> {
    let began = Instant::now();
    for (at_ms, fault) in &plan.faults {
        sleep_until(began + Duration::from_millis(*at_ms)).await;
        history.record(What::Told(format!("{fault:?}")));
        match *fault {
            Fault::Cut { all, by_reset } => host.net.cut(all, by_reset),
            Fault::Block { all, to_client, to_gateway, ms } => {
                host.net.block(all, to_client, to_gateway, Duration::from_millis(ms));
            }
            Fault::ServerDies => host.behind.die(),
            Fault::ServerCut => host.behind.cut(),
            Fault::ServerAway { ms } => {
                host.behind.leave(true);
                let behind = host.behind.clone();
                after(ms, move || behind.leave(false));
            }
            Fault::Restart { down_ms } => {
                host.end().await;
                sleep(Duration::from_millis(down_ms)).await;
                host.start(0).await?;
            }
            Fault::Crash { with_host, down_ms, clock_jump_ms } => {
                host.kill(with_host);
                sleep(Duration::from_millis(down_ms)).await;
                host.start(clock_jump_ms).await?;
            }
            Fault::LedgerLost { down_ms } => {
                host.kill(false);
                host.disk.lose()?;
                sleep(Duration::from_millis(down_ms)).await;
                host.start(0).await?;
            }
            Fault::Dark { ms } => {
                host.net.darken(true);
                let net = host.net.clone();
                after(ms, move || net.darken(false));
            }
            Fault::Disk { pace, ms } => {
                host.disk.set_pace(pace);
                let disk = host.disk.clone();
                after(ms, move || disk.set_pace(crate::disk::Pace::default()));
            }
        }
    }
    sleep_until(began + Duration::from_millis(plan.calm_ms)).await;
    host.disk.set_pace(crate::disk::Pace::default());
    host.net.darken(false);
    host.behind.leave(false);
    history.record(What::Calm);
    Ok(())
}

fn after(ms: u64, act: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        sleep(Duration::from_millis(ms)).await;
        act();
    });
}
