//! `waypost connect`: what a client's own configuration needs to get here.
//!
//! The snippet goes to stdout, ready to be pasted or written to a file; where it belongs, and what is still to be done,
//! goes to stderr.
//!
//! Must not know: how clients behave. It knows the names of their files and keys.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use url::Url;

use super::check::Report;
use crate::auth;
use crate::config::Config;

/// A client, by the form of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// `claude_desktop_config.json`; it launches commands only
    ClaudeDesktop,
    /// `.mcp.json`, or `~/.claude.json`
    ClaudeCode,
    /// `.vscode/mcp.json`
    Vscode,
    /// `.cursor/mcp.json`
    Cursor,
    /// `~/.codeium/windsurf/mcp_config.json`
    Windsurf,
    /// `~/.codex/config.toml`
    Codex,
    /// `~/.gemini/settings.json`
    Gemini,
    /// `cline_mcp_settings.json`
    Cline,
    /// The MCP Inspector's `--config`
    Inspector,
    /// `mcpServers`, as most others read it
    Generic,
}

/// Where MCP is served where nothing else is said.
const DEFAULT_ENDPOINT: &str = "/mcp";

/// How the client gets here.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Way {
    /// The address of the endpoint, like `https://mcp.example.com/mcp`. Without it, that of `listen` in the
    /// configuration file.
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    url: Option<Url>,
    /// The path of the endpoint, where the address has none.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_ENDPOINT)]
    endpoint: String,
    /// The variable of the client's environment that holds its token. Without it, `WAYPOST_TOKEN` where the
    /// configuration file asks for tokens.
    #[arg(long, value_name = "NAME", conflicts_with = "stdio")]
    token_env: Option<String>,
    /// Let the client launch `waypost stdio` itself.
    #[arg(long)]
    stdio: bool,
    /// With `--stdio`: which client of the configuration file it is.
    #[arg(long, value_name = "NAME", requires = "stdio")]
    client: Option<String>,
    /// What the client calls the gateway.
    #[arg(long, value_name = "NAME", default_value = "waypost")]
    name: String,
}

/// What is to be launched, or connected to.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Launched {
        command: String,
        args: Vec<String>,
    },
    Reached {
        url: String,
        /// The variable that holds the token, if one is needed.
        token: Option<String>,
    },
}

/// Prints the configuration of a client.
///
/// # Errors
/// If the way cannot be found out: no such file, an address that no client can use, no such client.
pub(super) fn connect(file: &Path, client: Client, way: &Way) -> anyhow::Result<Report> {
    if way.name.is_empty() {
        bail!("`--name` is empty");
    }
    let mut notes = vec![format!("# {}", client.place())];
    let is_launched = way.stdio || (client == Client::ClaudeDesktop && way.url.is_none());
    let entry = if is_launched {
        if !way.stdio {
            notes.push(
                "# Claude Desktop launches commands only; a gateway elsewhere needs `--url`.".to_owned(),
            );
        }
        launched(file, way)?
    } else {
        reached(file, way, &mut notes)?
    };
    if let Entry::Reached { token: Some(token), .. } = &entry {
        notes.push(format!("# {}", client.token_note(token)));
    }
    let stdout = client.page(&way.name, &entry)?;
    Ok(Report { stdout, stderr: notes.join("\n") + "\n", code: 0 })
}

/// The entry of a client that launches the gateway. Programs with windows have no `PATH` of a shell, and no working
/// directory to speak of, so both paths are whole.
fn launched(file: &Path, way: &Way) -> anyhow::Result<Entry> {
    let config = super::load(file)?;
    auth::launched_by(&config, way.client.as_deref())?;
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let file = std::path::absolute(file)?;
    let mut args = vec!["stdio".to_owned(), "--config".to_owned(), file.display().to_string()];
    if let Some(client) = &way.client {
        args.extend(["--client".to_owned(), client.clone()]);
    }
    if way.endpoint != DEFAULT_ENDPOINT {
        args.extend(["--endpoint".to_owned(), way.endpoint.clone()]);
    }
    Ok(Entry::Launched { command: program.display().to_string(), args })
}

/// The entry of a client that connects.
fn reached(file: &Path, way: &Way, notes: &mut Vec<String>) -> anyhow::Result<Entry> {
    if !way.endpoint.starts_with('/') {
        bail!("`--endpoint` is a path, like /mcp");
    }
    let (mut url, token) = match &way.url {
        Some(url) => (url.clone(), way.token_env.clone()),
        None => {
            let config = super::load(file)?;
            let needs_token = !config.clients.iter().any(|client| client.is_anonymous);
            let usual = needs_token.then(|| "WAYPOST_TOKEN".to_owned());
            (listening(&config, notes)?, way.token_env.clone().or(usual))
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        bail!("`--url` has the scheme `{}`: expected `http` or `https`", url.scheme());
    }
    if url.path() == "/" {
        url.set_path(&way.endpoint);
    }
    Ok(Entry::Reached { url: url.into(), token })
}

/// Where the gateway of a configuration is, for a client on the same machine.
fn listening(config: &Config, notes: &mut Vec<String>) -> anyhow::Result<Url> {
    let mut address = config.listen;
    if address.port() == 0 {
        bail!("`listen` has port 0, which is another one at each start: say where it is with `--url`");
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        });
        notes.push("# For a client on this machine; one elsewhere needs `--url`.".to_owned());
    }
    Ok(Url::parse(&format!("http://{address}/"))?)
}

impl Client {
    /// Where the snippet belongs.
    fn place(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => {
                "claude_desktop_config.json: in ~/Library/Application Support/Claude (macOS), %APPDATA%\\Claude (Windows), ~/.config/Claude (Linux)"
            }
            Self::ClaudeCode => ".mcp.json in the folder of the project, or `mcpServers` of ~/.claude.json",
            Self::Vscode => ".vscode/mcp.json in the workspace, or `MCP: Open User Configuration`",
            Self::Cursor => ".cursor/mcp.json in the folder of the project, or ~/.cursor/mcp.json",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::Codex => "~/.codex/config.toml, or .codex/config.toml in a trusted project",
            Self::Gemini => "~/.gemini/settings.json, or .gemini/settings.json in the folder of the project",
            Self::Cline => "cline_mcp_settings.json: `Configure MCP Servers` opens it",
            Self::Inspector => {
                "mcp.json, for `npx @modelcontextprotocol/inspector --config mcp.json --server NAME`"
            }
            Self::Generic => "the file in which the client has its `mcpServers`",
        }
    }

    /// How this client writes a variable of its environment, if it fills them in.
    fn reference(self, variable: &str) -> Option<String> {
        match self {
            Self::ClaudeCode => Some(format!("${{{variable}}}")),
            Self::Cursor | Self::Windsurf => Some(format!("${{env:{variable}}}")),
            Self::Gemini => Some(format!("${variable}")),
            Self::Vscode => Some(format!("${{input:{}}}", input_id(variable))),
            Self::ClaudeDesktop | Self::Codex | Self::Cline | Self::Inspector | Self::Generic => None,
        }
    }

    /// What is to be done about the token.
    fn token_note(self, variable: &str) -> String {
        match self {
            Self::Vscode => "VS Code asks for the token once, and keeps it.".to_owned(),
            Self::Codex | Self::ClaudeCode | Self::Cursor | Self::Windsurf | Self::Gemini => {
                format!("The token is read from the variable {variable} of the client's environment.")
            }
            Self::ClaudeDesktop | Self::Cline | Self::Inspector | Self::Generic => {
                format!("Put the token in place of {}: this client fills nothing in.", placeholder(variable))
            }
        }
    }

    fn page(self, name: &str, entry: &Entry) -> anyhow::Result<String> {
        if self == Self::Codex {
            return Ok(toml(name, entry));
        }
        let place = if self == Self::Vscode { "servers" } else { "mcpServers" };
        let servers: Map<String, Value> = [(name.to_owned(), self.server(entry))].into_iter().collect();
        let mut page = Map::new();
        if let (Self::Vscode, Entry::Reached { token: Some(token), .. }) = (self, entry) {
            let id = input_id(token);
            let about = format!("Token of {name}");
            page.insert(
                "inputs".to_owned(),
                json!([{"type": "promptString", "id": id, "description": about, "password": true}]),
            );
        }
        page.insert(place.to_owned(), servers.into());
        Ok(serde_json::to_string_pretty(&page)? + "\n")
    }

    /// The entry of one server, with the keys that this client has for it.
    fn server(self, entry: &Entry) -> Value {
        let (url, token) = match entry {
            Entry::Launched { command, args } => {
                return match self {
                    Self::Vscode | Self::ClaudeCode | Self::Inspector | Self::Cline => {
                        json!({"type": "stdio", "command": command, "args": args})
                    }
                    Self::ClaudeDesktop
                    | Self::Cursor
                    | Self::Windsurf
                    | Self::Codex
                    | Self::Gemini
                    | Self::Generic => json!({"command": command, "args": args}),
                };
            }
            Entry::Reached { url, token } => (url, token.as_deref()),
        };
        let credential = token.map(|token| {
            let value = self.reference(token).unwrap_or_else(|| placeholder(token));
            format!("Bearer {value}")
        });
        let mut server = match self {
            // What it launches is a bridge; blanks in its arguments get lost on Windows, so the header has none.
            Self::ClaudeDesktop => return bridge(url, credential),
            Self::Vscode | Self::ClaudeCode | Self::Generic => json!({"type": "http", "url": url}),
            Self::Cursor => json!({"url": url}),
            Self::Windsurf => json!({"serverUrl": url}),
            Self::Gemini => json!({"httpUrl": url}),
            Self::Cline => json!({"type": "streamableHttp", "url": url}),
            Self::Inspector => json!({"type": "streamable-http", "url": url}),
            Self::Codex => json!({}),
        };
        if let (Some(credential), Some(server)) = (credential, server.as_object_mut()) {
            server.insert("headers".to_owned(), json!({"Authorization": credential}));
        }
        server
    }
}

fn bridge(url: &str, credential: Option<String>) -> Value {
    let mut args = vec!["-y".to_owned(), "mcp-remote".to_owned(), url.to_owned()];
    if url.starts_with("http://") {
        args.push("--allow-http".to_owned());
    }
    match credential {
        Some(credential) => {
            args.extend(["--header".to_owned(), "Authorization:${WAYPOST_AUTHORIZATION}".to_owned()]);
            json!({"command": "npx", "args": args, "env": {"WAYPOST_AUTHORIZATION": credential}})
        }
        None => json!({"command": "npx", "args": args}),
    }
}

/// Stands where a token belongs.
fn placeholder(variable: &str) -> String {
    format!("<{variable}>")
}

/// What VS Code calls its question for the token: `WAYPOST_TOKEN` is `waypost-token`.
fn input_id(variable: &str) -> String {
    variable.to_ascii_lowercase().replace('_', "-")
}

/// As Codex has it. Its texts are those of JSON.
fn toml(name: &str, entry: &Entry) -> String {
    let text = |text: &str| Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let key = if is_bare { name.to_owned() } else { text(name) };
    let mut out = format!("[mcp_servers.{key}]\n");
    match entry {
        Entry::Launched { command, args } => {
            let args: Vec<String> = args.iter().map(|arg| text(arg)).collect();
            out.push_str(&format!("command = {}\nargs = [{}]\n", text(command), args.join(", ")));
        }
        Entry::Reached { url, token } => {
            out.push_str(&format!("url = {}\n", text(url)));
            if let Some(token) = token {
                out.push_str(&format!("bearer_token_env_var = {}\n", text(token)));
            }
        }
    }
    out
}
