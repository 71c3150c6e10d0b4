//! The field cases: inputs on which gateways of this kind have failed people. Each test bears the id of its
//! case; most have inputs of their own beside the one that the case gives.

mod aggregation;
mod apps;
mod asks;
mod auth;
mod calls;
mod config;
mod credentials;
mod edge;
mod endpoints;
mod errors;
mod explain;
mod extensions;
mod feed;
mod isolation;
mod issuers;
mod levels;
mod metrics;
mod names;
mod pagination;
mod pipe;
mod policy;
mod processes;
mod rates;
mod reload;
mod resources;
mod resume;
mod schemas;
mod sealed;
mod sessions;
mod stdio;
mod streams;
mod subscriptions;
mod tasks;
mod tls;
mod version;
