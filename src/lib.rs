//! Waypost: one MCP endpoint in front of many MCP servers, in both eras of the protocol.

pub mod admin;
pub mod catalog;
pub mod config;
pub mod demo;
pub mod exchange;
pub mod gateway;
pub mod mcp;
pub mod telemetry;
pub mod translate;
pub mod upstream;
pub mod wire;
