//! A client that is asked during its call, and answers.

use serde_json::{Value, json};

use super::Actor;
use crate::soak::connection::Answer;
use crate::support::json;
use crate::support::matrix::Era;

impl Actor<'_> {
    pub fn ask(&mut self) {
        let (server, token) = (self.server(), self.token());
        let body = self.body(server, "ask", &token, "");
        match self.client.era {
            Era::Legacy => self.answer_on_the_stream(&body, &token),
            Era::Modern => {
                let mut answer = self.exchange("ask", &body);
                for _ in 0..3 {
                    let Answer::Asked(asked) = &answer else { break };
                    let retry = self.retry(server, &token, asked);
                    answer = self.exchange("ask, answered", &retry);
                }
                self.check(&answer, &token);
            }
        }
    }

    /// The call again, with answers to what was asked.
    fn retry(&self, server: &str, token: &str, asked: &str) -> String {
        let asked: Value = serde_json::from_str(asked).unwrap_or_default();
        let keys = asked["result"]["inputRequests"].as_object().into_iter().flat_map(|all| all.keys());
        let answers: serde_json::Map<String, Value> =
            keys.map(|key| (key.clone(), json!({"action": "accept", "content": {"name": token}}))).collect();
        let params = json!({"name": format!("{server}__ask"), "arguments": {"token": token},
            "inputResponses": answers, "requestState": asked["result"]["requestState"]});
        self.client.body("tools/call", &params.to_string())
    }

    fn answer_on_the_stream(&mut self, body: &str, token: &str) {
        let mut open = match self.client.message(body).try_open() {
            Ok(open) if open.status == 200 => open,
            Ok(open) => return self.world.ledger.ended("ask", format!("status {}", open.status)),
            Err(error) => return self.world.ledger.breach("answer lost", format!("ask: {error}")),
        };
        let mut messages = Vec::new();
        if open.head.header("content-length").is_some() {
            messages.push(open.whole().text());
        } else {
            loop {
                let event = match open.try_event() {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => return self.world.ledger.breach("answer lost", format!("ask: {error}")),
                };
                let is_question = json::get(&event.data, &["method"]) == Some("\"elicitation/create\"");
                if is_question {
                    let id = json::get(&event.data, &["id"]).unwrap_or("null");
                    let text = format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"name":"n"}}}}}}"#
                    );
                    drop(self.connection.exchange(&self.client.post(text)));
                    self.world.ledger.ended("ask", "question answered");
                }
                messages.push(event.data);
            }
        }
        let answer = Answer::among(body, &messages);
        self.book("ask, answered", &answer);
        self.check(&answer, token);
    }
}
