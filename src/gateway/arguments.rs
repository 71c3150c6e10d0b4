//! The arguments of a call against what the rules ask of them.
//!
//! Must not know: how a call is carried.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::error::{GatewayError, GatewayErrorKind};
use super::{Current, Gateway, Target};
use crate::catalog::Candidate;
use crate::config::{Narrow, Sight};
use crate::exchange::{Call, Principal};
use crate::mcp::ListKind;

impl Gateway {
    /// Whether the arguments of an admitted call of a tool fit what every layer asks of them.
    ///
    /// # Errors
    /// `InvalidArguments`, with everything that does not.
    pub(super) fn check_arguments(
        &self,
        current: &Current,
        call: &Call,
        target: &Target,
    ) -> Result<(), GatewayError> {
        let narrows = self.narrows(current, &call.principal, target);
        if narrows.is_empty() {
            return Ok(());
        }
        let text = call.request.param("arguments");
        let arguments = match text.as_ref().map(|raw| serde_json::from_str::<Once>(raw.text())) {
            None => Value::Object(Map::new()),
            Some(Ok(Once(arguments))) => arguments,
            Some(Err(error)) => return Err(misfit(&[error.to_string()])),
        };
        let violations: Vec<String> =
            narrows.iter().flat_map(|narrow| narrow.violations(&arguments)).collect();
        if violations.is_empty() { Ok(()) } else { Err(misfit(&violations)) }
    }

    /// What the layers ask of the arguments of a tool.
    pub(super) fn narrows(&self, current: &Current, principal: &Principal, target: &Target) -> Vec<&Narrow> {
        let Some(upstream) = self.config.upstreams.get(target.upstream) else { return Vec::new() };
        let layers = self.config.layers(principal.endpoint, principal.client, &principal.roles);
        let layers = layers.into_iter().flatten().map(|layer| &layer.rules.tools.narrow);
        let layers: Vec<_> = layers.filter(|narrow| !narrow.is_empty()).collect();
        if upstream.rules.tools.narrow.is_empty() && layers.is_empty() {
            return Vec::new();
        }
        let kind = ListKind::Tools;
        let listed = current.at(principal).find_native(kind, target.upstream, &target.native);
        let known =
            self.names.get(target.upstream).map(|names| names.expose(&target.native)).unwrap_or_default();
        let hints = listed.map_or(Sight::Unseen, |entry| Sight::Seen(entry.hints));
        let candidate = Candidate { kind, native: &target.native, known: &known, hints };
        let own = upstream.rules.tools.narrow.iter().filter(|narrow| narrow.pattern.matches(&*target.native));
        let others =
            layers.into_iter().flatten().filter(|narrow| narrow.pattern.matches(candidate.subject()));
        own.chain(others).collect()
    }
}

fn misfit(violations: &[String]) -> GatewayError {
    let text = format!("The arguments do not fit what is allowed here: {}", violations.join("; "));
    GatewayError::new(GatewayErrorKind::InvalidArguments, text)
}

/// A JSON value in which no object names a member twice: who reads the first would act on what was not looked at.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = Once;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Once, E> {
                Ok(Once(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Once, E> {
                Ok(Once(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Once, E> {
                Ok(Once(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Once, E> {
                Ok(Once(value.into()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Once, E> {
                Ok(Once(value.into()))
            }

            fn visit_unit<E>(self) -> Result<Once, E> {
                Ok(Once(Value::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Once, A::Error> {
                let mut all = Vec::new();
                while let Some(Once(item)) = items.next_element()? {
                    all.push(item);
                }
                Ok(Once(all.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Once, A::Error> {
                let mut all = Map::new();
                while let Some((name, Once(value))) = members.next_entry::<String, Once>()? {
                    if all.contains_key(&name) {
                        return Err(serde::de::Error::custom(format_args!("they name {name:?} twice")));
                    }
                    all.insert(name, value);
                }
                Ok(Once(all.into()))
            }
        }

        deserializer.deserialize_any(Parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_twice_is_refused_at_any_depth() {
        let text = r#"{"a":[1,-2,1.5,"x",true,null,{"b":{}}]}"#;
        let Once(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value.to_string(), text);
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"\u0061":3}]}"#] {
            assert!(serde_json::from_str::<Once>(text).is_err(), "{text}");
        }
    }
}
