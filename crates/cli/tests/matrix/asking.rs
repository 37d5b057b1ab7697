//! Requests of the server to the client, on a stream that is dropped.

use rejoin_testkit::call::Call;
use rejoin_testkit::check;
use rejoin_testkit::failure::{Failure, TestResult};
use rejoin_testkit::raw::{Connection, Event};
use serde_json::Value;

use crate::server::Kind;
use crate::support::{Bench, cut, refused_for, resume};

fn ask(id: u64) -> Call {
    Kind::chosen().ask(id)
}

fn accept() -> Value {
    Kind::chosen().yes()
}

/// The question itself, which must be the next message.
async fn question(stream: &mut Connection) -> Result<(Event, Value), Failure> {
    let event = stream.message().await?;
    let message = event.message().unwrap_or_default();
    if message["method"] != "elicitation/create" {
        return Err(Failure::new(format!("not a question: {message}")));
    }
    Ok((event, message["id"].clone()))
}

fn questions(events: &[Event]) -> Result<usize, Failure> {
    let messages = check::messages(events)?;
    Ok(messages.iter().filter(|message| message["method"] == "elicitation/create").count())
}

fn assert_said_yes(response: &Value) {
    assert!(Kind::chosen().says_yes(response), "{response}");
}

#[tokio::test]
async fn a_question_comes_on_the_stream_of_its_call_and_its_answer_is_heard() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut stream = session.call(&ask(10)).await?;
    let (_, id) = question(&mut stream).await?;
    assert_eq!(session.respond(&id, accept()).await?, 202);
    assert_said_yes(&stream.response().await?);
    Ok(())
}

#[tokio::test]
async fn a_question_that_was_read_is_not_asked_again_on_resume() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut stream = session.call(&ask(10)).await?;
    let (event, id) = question(&mut stream).await?;
    cut(&bench, stream).await?;
    let mut resumed = session.get(event.id.as_deref()).await?;
    resumed.event().await?;
    assert_eq!(session.respond(&id, accept()).await?, 202);
    assert_said_yes(&resumed.response().await?);
    assert_eq!(questions(resumed.events())?, 0);
    Ok(())
}

#[tokio::test]
async fn a_lost_question_is_delivered_on_resume_and_after_its_answer_no_more() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut stream = session.call(&ask(10)).await?;
    let origin = stream.event().await?.id.unwrap_or_default();
    bench.count.wait("ask", 1, rejoin_testkit::deadline::WAIT).await?;
    cut(&bench, stream).await?;
    let mut resumed = session.get(Some(&origin)).await?;
    let (_, id) = question(&mut resumed).await?;
    assert_eq!(session.respond(&id, accept()).await?, 202);
    assert_said_yes(&resumed.response().await?);
    let again = resume(&session, &origin).await?;
    assert_eq!(questions(again.events())?, 0);
    assert_eq!(check::messages(again.events())?.len(), 1);
    assert_eq!(bench.count.runs("ask")?, 1);
    Ok(())
}

#[tokio::test]
async fn an_answer_counts_as_proof_that_the_events_before_it_were_read() -> TestResult {
    let bench = Bench::start(&[]).await?;
    let session = bench.session().await?;
    let mut stream = session.call(&ask(10)).await?;
    let (event, id) = question(&mut stream).await?;
    cut(&bench, stream).await?;
    assert_eq!(session.respond(&id, accept()).await?, 202);
    let refusal = refused_for(&session, &ask(10), "stream_not_drained").await?;
    assert_eq!(refusal.cursor(), event.id.as_deref());
    let tail = resume(&session, refusal.cursor().unwrap_or_default()).await?;
    assert_said_yes(&check::messages(tail.events())?[0]);
    assert_eq!(bench.count.runs("ask")?, 1);
    Ok(())
}
