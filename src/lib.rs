//! Waypost: one MCP endpoint in front of many MCP servers, in both eras of the protocol.

pub mod admin;
mod app;
pub mod auth;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod demo;
pub mod downstream;
pub mod exchange;
pub mod gateway;
pub mod mcp;
mod outbound;
mod seal;
pub mod telemetry;
pub mod translate;
pub mod upstream;
pub mod wire;
