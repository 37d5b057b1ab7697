//! The tools that ask the client something in the middle of their call.

use std::time::Duration;

use serde_json::{Value, json};

use super::call::{Answer, AnswerWait};
use super::tools::{Execution, Outcome, ToolResult};

/// Longest time the client has to answer a question.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(600);

/// Most tokens a `sample` may ask for.
const SAMPLE_TOKENS_MAX: u64 = 200;

impl Execution {
    pub(super) fn ask(&self, question: &str) -> Outcome {
        if !self.server.client_elicits() {
            let text = "this client cannot be asked: it has no elicitation capability";
            return Outcome::Result(ToolResult::error(text));
        }
        let schema = json!({
            "type": "object",
            "properties": { "answer": { "type": "string", "title": "Answer" } },
            "required": ["answer"],
        });
        let params = json!({ "message": question, "requestedSchema": schema });
        self.relay_answer("elicitation/create", &params, |result| {
            match (result["action"].as_str(), result["content"]["answer"].as_str()) {
                (Some("accept"), Some(answer)) => answer.to_owned(),
                (Some(action), _) => format!("no answer: {action}"),
                (None, _) => "no answer: the client's result has no action".to_owned(),
            }
        })
    }

    pub(super) fn sample(&self, prompt: &str) -> Outcome {
        if !self.server.client_samples() {
            let text = "this client has no model to ask: it has no sampling capability";
            return Outcome::Result(ToolResult::error(text));
        }
        let content = json!({ "type": "text", "text": prompt });
        let params = json!({
            "messages": [{ "role": "user", "content": content }],
            "maxTokens": SAMPLE_TOKENS_MAX,
        });
        self.relay_answer("sampling/createMessage", &params, |result| {
            result["content"]["text"].as_str().unwrap_or("(the answer has no text)").to_owned()
        })
    }

    fn relay_answer(
        &self,
        method: &str,
        params: &Value,
        text_of: impl FnOnce(&Value) -> String,
    ) -> Outcome {
        match self.server.ask(&self.call, method, params, ANSWER_WAIT_MAX) {
            AnswerWait::Answered(Answer::Result(result)) => {
                let value = serde_json::from_str(result.get()).unwrap_or_default();
                Outcome::Result(ToolResult::text(text_of(&value)).structured(&result))
            }
            AnswerWait::Answered(Answer::Error(error)) => {
                let text = format!("the client refused: {}", error.get());
                Outcome::Result(ToolResult::error(text))
            }
            AnswerWait::TimedOut => {
                let seconds = ANSWER_WAIT_MAX.as_secs();
                let text = format!("the client did not answer within {seconds} seconds");
                Outcome::Result(ToolResult::error(text))
            }
            AnswerWait::Cancelled => Outcome::Silence,
        }
    }
}
