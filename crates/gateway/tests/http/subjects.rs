//! Credentials that the operator maps to one subject (design section 2, "principal").

use rejoin_core::id::digest;
use rejoin_gateway::subjects::Subjects;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::Request;
use rejoin_testkit::session::{Identity, Session};

use crate::support::{Bench, request};

fn subjects(credentials: &[(&str, &str)]) -> Result<Subjects, Failure> {
    let line = |&(credential, subject): &(&str, &str)| {
        let hash = digest(credential.as_bytes());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hash} {subject}\n")
    };
    Ok(Subjects::parse(&credentials.iter().map(line).collect::<String>())?)
}

fn post_of(session: &Session) -> Request {
    session.post_request(&request(9, "ping"))
}

async fn status(bench: &Bench, request: Request) -> Result<u16, Failure> {
    Ok(bench.ask(&request).await?.status())
}

/// The head of a GET, whose stream goes on.
async fn get_status(session: &Session) -> Result<u16, Failure> {
    Ok(session.get(None).await?.head().await?.status)
}

#[tokio::test]
async fn a_refreshed_credential_of_the_same_subject_continues_the_session() -> TestResult {
    let bench = Bench::start().await?;
    let map = [("Bearer a", "alice"), ("Bearer b", "alice"), ("Bearer d", "dora")];
    bench.gateway.set_subjects(subjects(&map)?);
    let first = bench.session_as(Identity::authorized("Bearer a")).await?;
    let refreshed = first.presented_as(Identity::authorized("Bearer b"));
    assert_eq!(status(&bench, post_of(&refreshed)).await?, 200);
    assert_eq!(get_status(&refreshed).await?, 200);
    assert_eq!(get_status(&first).await?, 200);
    assert_eq!(refreshed.delete().await?, 204);
    assert_eq!(status(&bench, post_of(&first)).await?, 404);
    Ok(())
}

#[tokio::test]
async fn whoever_is_not_of_the_subject_gets_the_bytes_of_a_stranger() -> TestResult {
    let bench = Bench::start().await?;
    let map = [("Bearer a", "alice"), ("Bearer b", "alice"), ("Bearer d", "dora")];
    bench.gateway.set_subjects(subjects(&map)?);
    let owner = bench.session_as(Identity::authorized("Bearer a")).await?;
    // An unsigned token that claims to be hers, the hash and the name themselves, another subject.
    let forged = "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4Iiwic3ViIjoiYWxpY2UifQ.";
    for credential in ["Bearer c", forged, "alice", "bearer a", "Bearer d"] {
        let thief = owner.presented_as(Identity::authorized(credential));
        let gets = |session: &Session| session.get_request(None);
        let deletes = |session: &Session| session.http("DELETE");
        let makes: [&dyn Fn(&Session) -> Request; 3] = [&post_of, &gets, &deletes];
        for make in makes {
            let foreign = bench.ask(&make(&thief)).await?.without_date();
            assert_eq!(foreign.status(), 404, "{credential}");
            let unknown = make(&thief).header("Mcp-Session-Id", "00");
            assert_eq!(bench.ask(&unknown).await?.without_date(), foreign, "{credential}");
        }
    }
    assert_eq!(status(&bench, post_of(&owner)).await?, 200);
    Ok(())
}

#[tokio::test]
async fn a_credential_that_is_taken_out_of_the_map_loses_the_session() -> TestResult {
    let bench = Bench::start().await?;
    bench.gateway.set_subjects(subjects(&[("Bearer a", "alice"), ("Bearer b", "alice")])?);
    let first = bench.session_as(Identity::authorized("Bearer a")).await?;
    let refreshed = first.presented_as(Identity::authorized("Bearer b"));
    bench.gateway.set_subjects(subjects(&[("Bearer b", "alice")])?);
    assert_eq!(status(&bench, post_of(&first)).await?, 404);
    assert_eq!(status(&bench, post_of(&refreshed)).await?, 200);
    Ok(())
}

#[tokio::test]
async fn a_session_goes_on_when_its_credential_is_mapped_after_it_was_opened() -> TestResult {
    let bench = Bench::start().await?;
    let first = bench.session_as(Identity::authorized("Bearer a")).await?;
    let refreshed = first.presented_as(Identity::authorized("Bearer b"));
    let stranger = first.presented_as(Identity::authorized("Bearer d"));
    assert_eq!(status(&bench, post_of(&refreshed)).await?, 404);
    let map = [("Bearer a", "alice"), ("Bearer b", "alice"), ("Bearer d", "dora")];
    bench.gateway.set_subjects(subjects(&map)?);
    assert_eq!(status(&bench, post_of(&first)).await?, 200);
    assert_eq!(status(&bench, post_of(&refreshed)).await?, 200);
    assert_eq!(status(&bench, post_of(&stranger)).await?, 404);
    // The old credential has run out and is forgotten: the session stays its subject's.
    bench.gateway.set_subjects(subjects(&[("Bearer b", "alice"), ("Bearer a", "dora")])?);
    assert_eq!(status(&bench, post_of(&refreshed)).await?, 200);
    assert_eq!(status(&bench, post_of(&first)).await?, 404);
    assert_eq!(status(&bench, post_of(&stranger)).await?, 404);
    Ok(())
}
