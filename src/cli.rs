//! The command line, and the only writer of stdout.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::{app, config, demo, telemetry};

pub use page::page as reference_page;

mod ask;
pub mod check;
mod connect;
mod content;
mod explain;
mod import;
mod offer;
mod page;
mod reach;
mod table;

/// One MCP endpoint in front of many MCP servers.
#[derive(Debug, Parser)]
#[command(name = "waypost", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    file: File,
}

#[derive(Debug, clap::Args)]
struct File {
    /// The configuration file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "gateway.yaml",
        global = true,
        env = "WAYPOST_CONFIG"
    )]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the endpoint (also the default without a command).
    Serve,
    /// Serve one client on stdin and stdout: for clients that launch their servers.
    Stdio {
        /// The client of the configuration that it is; without it, one without credentials.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// The endpoint that it gets, by its path; without it `/mcp`, or else the first of the file.
        #[arg(long, value_name = "PATH")]
        endpoint: Option<String>,
        /// How long the first message waits for upstreams that are still connecting; what comes later is told as a
        /// change of the lists.
        #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=600))]
        wait: u16,
    },
    /// Check the configuration file and say everything that is wrong with it.
    Check {
        /// Print every key with its value and where that comes from; secrets are hidden.
        #[arg(long)]
        effective: bool,
    },
    /// End the children of a gateway that was killed. Started by the gateway itself.
    #[command(hide = true, name = app::GUARD)]
    Guard,
    /// Say whether a client may use a tool, a prompt, a resource or an extension, and why: each check, with the
    /// rule and its line.
    #[command(
        after_help = "Ends with 0 if it is allowed, 3 if it is denied, 4 if nobody offers it, 5 if its upstream is not there."
    )]
    Explain {
        /// For whom; may be left out where there is only one client.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        #[command(flatten)]
        subject: explain::Subject,
        #[command(flatten)]
        source: explain::Source,
    },
    /// Say who may use a tool, a prompt, a resource or an extension.
    Who {
        #[command(flatten)]
        subject: explain::Subject,
        #[command(flatten)]
        source: explain::Source,
    },
    /// List tools, or show one.
    #[command(subcommand, after_help = OFFERED)]
    Tools(offer::Tools),
    /// Call a tool.
    #[command(after_help = CALLED)]
    Call {
        /// Its name, as clients see it.
        name: String,
        #[command(flatten)]
        arguments: ask::Arguments,
        #[command(flatten)]
        reach: reach::Reach,
    },
    /// List resources, or read one.
    #[command(subcommand, after_help = OFFERED)]
    Resources(offer::Resources),
    /// List prompts, or get one.
    #[command(subcommand, after_help = OFFERED)]
    Prompts(offer::Prompts),
    /// Print what a client's own configuration needs to connect here.
    Connect {
        /// Which client.
        #[arg(value_name = "CLIENT")]
        program: connect::Client,
        #[command(flatten)]
        way: connect::Way,
    },
    /// Take the servers of another program's configuration over: Claude Desktop, Claude Code, VS Code, Cursor, Windsurf,
    /// Gemini CLI, Codex and others. Prints ours.
    Import {
        #[command(flatten)]
        files: import::Files,
    },
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Print what lets a shell complete the command line.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Run one of the built-in demo servers on stdin and stdout.
    #[command(hide = true)]
    Demo {
        /// Which one.
        server: DemoServer,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DemoServer {
    /// A server of the handshake revisions.
    StdioLegacy,
    /// A server of the stateless revision.
    StdioModern,
}

/// Runs the program.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.unwrap_or(Command::Serve) {
        Command::Serve => serve(&cli.file.config, app::serve),
        Command::Stdio { client, endpoint, wait } => {
            let patience = Duration::from_secs(wait.into());
            let pipe = (tokio::io::stdin(), tokio::io::stdout());
            let who = (client.as_deref(), endpoint.as_deref());
            let converse = async |config| app::converse(config, who, pipe, patience).await;
            serve(&cli.file.config, converse)
        }
        Command::Check { effective } => {
            let output = if effective { check::Output::Effective } else { check::Output::Summary };
            print(&check::check(&cli.file.config, output, &config::process_env))
        }
        Command::Guard => guard(),
        Command::Explain { client, subject, source } => {
            answer(explain::explain(&cli.file.config, client.as_deref(), &subject, &source))
        }
        Command::Who { subject, source } => answer(explain::who(&cli.file.config, &subject, &source)),
        Command::Tools(wanted) => inquire(offer::tools(&cli.file.config, &wanted)),
        Command::Call { name, arguments, reach } => {
            inquire(ask::call(&cli.file.config, &name, &arguments, &reach))
        }
        Command::Resources(wanted) => inquire(offer::resources(&cli.file.config, &wanted)),
        Command::Prompts(wanted) => inquire(offer::prompts(&cli.file.config, &wanted)),
        Command::Connect { program, way } => told(connect::connect(&cli.file.config, program, &way)),
        Command::Import { files } => told(import::import(&files)),
        Command::Schema => print(&check::Report::of(config::schema())),
        Command::Completions { shell } => print(&check::Report::of(completions(shell))),
        Command::Demo { server } => run_demo(server),
    }
}

/// Loads the configuration and serves it.
fn serve(path: &Path, task: impl AsyncFnOnce(config::Config) -> anyhow::Result<()>) -> ExitCode {
    let loaded = match config::load(path, &config::process_env) {
        Ok(loaded) => loaded,
        Err(problems) => return fail(&problems),
    };
    let log = match telemetry::init(&loaded.config.log) {
        Ok(log) => log,
        Err(error) => return fail(&error),
    };
    for warning in &loaded.warnings {
        telemetry::ConfigWarning { reason: &warning.to_string() }.emit();
    }
    let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let end = on_runtime(task(loaded.config));
    drop(log);
    exit_code(end)
}

fn run_to_end(task: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    exit_code(on_runtime(task))
}

fn exit_code(end: anyhow::Result<()>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn on_runtime<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(task);
    // What does not end by itself by now (a read of stdin, say) is not waited for.
    runtime.shutdown_background();
    result
}

/// Runs a command that has something to say.
fn answer(report: impl Future<Output = anyhow::Result<check::Report>>) -> ExitCode {
    let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match on_runtime(report) {
        Ok(report) => print(&report),
        Err(error) => fail(&complaint(&error)),
    }
}

/// Runs a command that asks servers: what goes wrong before it could is the fault of whoever asks.
fn inquire(report: impl Future<Output = anyhow::Result<check::Report>>) -> ExitCode {
    let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let report = on_runtime(report);
    print(&report.unwrap_or_else(|error| check::Report {
        stdout: String::new(),
        stderr: format!("{}\n", complaint(&error)),
        code: MISUSED,
    }))
}

/// The configuration that a command is about.
fn load(file: &Path) -> anyhow::Result<config::Config> {
    Ok(config::load(file, &config::process_env)?.config)
}

/// What stands on standard error of a command that failed. What is wrong with a file says by itself that it is an error.
fn complaint(error: &anyhow::Error) -> String {
    match error.downcast_ref::<config::Problems>() {
        Some(problems) => problems.to_string(),
        None => format!("error: {error:#}"),
    }
}

fn told(report: anyhow::Result<check::Report>) -> ExitCode {
    match report {
        Ok(report) => print(&report),
        Err(error) => fail(&complaint(&error)),
    }
}

/// How a command ends that was not understood, as the parser of the command line has it.
const MISUSED: u8 = 2;

const OFFERED: &str = "Each ends with 0, 2 if it is used wrongly, 3 if that is denied, 4 if nobody offers it, 5 if its server is not there.";
const CALLED: &str = "Ends with 0, 1 if the tool failed, 2 if it is used wrongly, 3 if that is denied, 4 if nobody offers it, 5 if its server is not there.";

/// What a shell reads to complete the command line. It is not offered what the help does not show.
fn completions(shell: clap_complete::Shell) -> String {
    let whole = Cli::command();
    let mut shown = clap::Command::new("waypost")
        .args(whole.get_arguments())
        .subcommands(whole.get_subcommands().filter(|command| !command.is_hide_set()));
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown, "waypost", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn guard() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    runtime.block_on(app::stand_guard());
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

fn run_demo(server: DemoServer) -> ExitCode {
    let kind = match server {
        DemoServer::StdioLegacy => demo::Demo::Legacy,
        DemoServer::StdioModern => demo::Demo::Modern,
    };
    run_to_end(async move { Ok(demo::run_stdio(kind, tokio::io::stdin(), tokio::io::stdout()).await?) })
}

/// Writes a report. Whoever reads no further (`| head`) has seen enough.
fn print(report: &check::Report) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(report.stdout.as_bytes()).and_then(|()| stdout.flush());
    // Nobody can be told that standard error is closed.
    let _closed = std::io::stderr().write_all(report.stderr.as_bytes());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => fail(&format!("error: cannot write: {error}")),
        Ok(()) | Err(_) => ExitCode::from(report.code),
    }
}

#[expect(clippy::print_stderr, reason = "the command line talks to its user")]
fn fail(error: &impl std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
