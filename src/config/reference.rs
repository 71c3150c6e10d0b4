//! The reference of the file: every mapping, its keys, their forms, defaults and bounds.
//!
//! The reader takes its keys from here, with their defaults and bounds, and `docs/config.md` is written from
//! here, so that neither can say anything else than the other.
//!
//! Must not know: how values are read, what becomes of them.

mod audit;
mod auth;
mod client;
mod endpoint;
mod foreign;
mod gateway;
mod identity;
mod markdown;
mod oauth;
mod process;
mod resilience;
mod schema;
mod upstream;
mod way;

use std::fmt::Debug;
use std::time::Duration;

use serde_json::Value;

pub(crate) use audit::*;
pub(crate) use auth::*;
pub(crate) use client::*;
pub(crate) use endpoint::*;
pub(crate) use foreign::*;
pub(crate) use gateway::*;
pub(crate) use identity::*;
pub(crate) use oauth::*;
pub(crate) use process::*;
pub(crate) use resilience::*;
pub(crate) use upstream::*;
pub(crate) use way::*;

#[cfg(test)]
pub(crate) use markdown::TABLES;
pub use markdown::page;
pub use schema::schema;

use super::units::Unit;

/// One mapping of the file.
#[derive(Debug)]
pub(crate) struct Table {
    /// Where it stands, as the reference heads it; empty for the whole file.
    pub(crate) path: &'static str,
    /// What it is.
    pub(crate) about: &'static str,
    /// Its keys, in the order of the reference.
    pub(crate) keys: &'static [&'static dyn Describe],
    /// Keys that are known and not supported yet: to be refused by name.
    pub(crate) later: &'static [&'static str],
    /// Keys of other programs' files.
    pub(crate) foreign: &'static [Foreign],
    /// What people write, or other programs call it, and what it is called here.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    /// A whole file that shows it.
    pub(crate) example: &'static str,
}

/// One key of a mapping.
#[derive(Debug)]
pub(crate) struct Key<F: 'static> {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) form: F,
}

/// What the reference says about a key.
pub(crate) trait Describe: Debug + Sync {
    fn name(&self) -> &'static str;
    fn about(&self) -> &'static str;
    fn form(&self) -> &dyn Form;
}

impl<F: Form> Describe for Key<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn form(&self) -> &dyn Form {
        &self.form
    }
}

/// How the value of a key is written.
pub(crate) trait Form: Debug + Sync + 'static {
    /// In the words of the reference.
    fn written(&self) -> String;

    /// The value without the key; empty if there is none.
    fn default(&self) -> String;

    /// Least and greatest; empty if there are none.
    fn bounds(&self) -> String {
        String::new()
    }

    /// What it is made of.
    fn shape(&self) -> Shape {
        Shape::Plain
    }

    /// As JSON Schema.
    fn schema(&self) -> Value {
        schema::of_shape(self.shape(), &self.written())
    }
}

/// What the value of a key is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Nothing that is known here.
    Plain,
    /// Something that may be a secret.
    Secret,
    /// A mapping with known keys.
    Mapping(&'static Table),
    /// A mapping of names to mappings with known keys.
    Names(&'static Table),
    /// A list of mappings with known keys.
    List(&'static Table),
}

/// A number, or a number with a unit.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    pub(crate) default: Option<T>,
    pub(crate) min: T,
    pub(crate) max: T,
}

impl<T: Unit + Sync> Form for Bounded<T> {
    fn written(&self) -> String {
        T::NOUN.to_owned()
    }

    fn default(&self) -> String {
        self.default.map(|default| format!("`{}`", default.write())).unwrap_or_default()
    }

    fn bounds(&self) -> String {
        format!("`{}` to `{}`", self.min.write(), self.max.write())
    }

    fn schema(&self) -> Value {
        let mut schema =
            match (T::IS_NUMBER, self.min.write().parse::<u64>(), self.max.write().parse::<u64>()) {
                (true, Ok(min), Ok(max)) => schema::number(min, max),
                _ => schema::unit(&T::pattern()),
            };
        if let Some(default) = self.default.map(Unit::write) {
            schema::put_default(
                &mut schema,
                default.parse().map_or(default.into(), |number: u64| number.into()),
            );
        }
        schema
    }
}

/// A mapping of patterns to durations.
#[derive(Debug)]
pub(crate) struct Durations(pub(crate) Bounded<Duration>);

impl Form for Durations {
    fn written(&self) -> String {
        "mapping of patterns to durations".to_owned()
    }

    fn default(&self) -> String {
        "`{}`".to_owned()
    }

    fn bounds(&self) -> String {
        self.0.bounds()
    }
}

/// A mapping of patterns to JSON Schemas.
#[derive(Debug)]
pub(crate) struct Schemas;

impl Form for Schemas {
    fn written(&self) -> String {
        "mapping of patterns to JSON Schemas".to_owned()
    }

    fn default(&self) -> String {
        "`{}`".to_owned()
    }

    fn schema(&self) -> Value {
        serde_json::json!({"type": "object", "additionalProperties": {"type": "object"}})
    }
}

/// `true` or `false`.
#[derive(Debug)]
pub(crate) struct Flag {
    pub(crate) default: Option<bool>,
    /// What the reference says where the default depends on other keys.
    pub(crate) otherwise: &'static str,
}

impl Form for Flag {
    fn written(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn default(&self) -> String {
        self.default.map_or_else(|| self.otherwise.to_owned(), |default| format!("`{default}`"))
    }

    fn schema(&self) -> Value {
        let mut schema = schema::flag();
        if let Some(default) = self.default {
            schema::put_default(&mut schema, default.into());
        }
        schema
    }
}

/// One of a few words.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) words: &'static [&'static str],
    pub(crate) default: &'static str,
}

impl Form for Choice {
    fn written(&self) -> String {
        let words: Vec<String> = self.words.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    }

    fn default(&self) -> String {
        if self.default.is_empty() { String::new() } else { format!("`{}`", self.default) }
    }

    fn schema(&self) -> Value {
        let mut schema = schema::choice(self.words);
        if !self.default.is_empty() {
            schema::put_default(&mut schema, self.default.into());
        }
        schema
    }
}

/// Anything that is read by a function of its own.
#[derive(Debug)]
pub(crate) struct Free {
    pub(crate) written: &'static str,
    pub(crate) default: &'static str,
    pub(crate) bounds: &'static str,
}

impl Form for Free {
    fn written(&self) -> String {
        self.written.to_owned()
    }

    fn default(&self) -> String {
        self.default.to_owned()
    }

    fn bounds(&self) -> String {
        self.bounds.to_owned()
    }
}

/// As [`Free`]; what is written here may be a secret.
#[derive(Debug)]
pub(crate) struct Secret(pub(crate) Free);

impl Form for Secret {
    fn written(&self) -> String {
        self.0.written()
    }

    fn default(&self) -> String {
        self.0.default()
    }

    fn bounds(&self) -> String {
        self.0.bounds()
    }

    fn shape(&self) -> Shape {
        Shape::Secret
    }
}

/// A mapping with known keys.
#[derive(Debug)]
pub(crate) struct Nested(pub(crate) &'static Table);

impl Form for Nested {
    fn written(&self) -> String {
        "mapping".to_owned()
    }

    fn default(&self) -> String {
        String::new()
    }

    fn shape(&self) -> Shape {
        Shape::Mapping(self.0)
    }
}

/// A mapping of names to mappings with known keys.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) &'static Table);

impl Form for Named {
    fn written(&self) -> String {
        "mapping of names".to_owned()
    }

    fn default(&self) -> String {
        String::new()
    }

    fn shape(&self) -> Shape {
        Shape::Names(self.0)
    }
}

/// A list of mappings with known keys.
#[derive(Debug)]
pub(crate) struct Listed(pub(crate) &'static Table);

impl Form for Listed {
    fn written(&self) -> String {
        "list of mappings".to_owned()
    }

    fn default(&self) -> String {
        "`[]`".to_owned()
    }

    fn shape(&self) -> Shape {
        Shape::List(self.0)
    }
}
