//! What changes in an answer on its way to the caller: the URIs that need a tag, and who may share a cached
//! copy. An answer in which nothing changes is not looked into.

use bytes::Bytes;

use super::Gateway;
use crate::exchange::{Answer, Outcome, Principal};
use crate::mcp::{Body, Draft, Method, Raw, Response};

impl Gateway {
    /// The outcome of a call to the upstream at this place, as the caller gets it.
    pub(super) fn rewrite(
        &self,
        principal: &Principal,
        (upstream, method): (usize, Method),
        outcome: Outcome,
    ) -> Outcome {
        let rewrite = |answer: Answer| {
            let tagged = {
                let current = self.current.load();
                let tags = current.at(principal).tags(upstream);
                tags.and_then(|tags| tags.rewrite(method, &answer.response))
            };
            let response = tagged.unwrap_or(answer.response);
            let is_own = method == Method::ResourcesRead && !self.is_one_for_all();
            let narrowed = is_own.then(|| narrow(&response)).flatten();
            Answer { response: narrowed.unwrap_or(response), ..answer }
        };
        match outcome {
            Outcome::Complete(answer) => Outcome::Complete(rewrite(answer)),
            Outcome::InputRequired(answer) => Outcome::InputRequired(rewrite(answer)),
            Outcome::Error(answer) => Outcome::Error(rewrite(answer)),
        }
    }
}

/// The response as one that only requests with the same credentials may share; `None` if it does not say that
/// everybody may. What one client reads is not for the cache of another, whatever its server thinks.
fn narrow(response: &Response) -> Option<Response> {
    let Body::Result(result) = &response.body else { return None };
    let scope = response.result("cacheScope").as_ref().and_then(Raw::string)?;
    if scope != "public" {
        return None;
    }
    let mut draft = Draft::new(response.text.clone());
    draft.edit_object(result, &[("cacheScope", Some(Bytes::from_static(b"\"private\"")))]);
    response.edited(draft)
}
