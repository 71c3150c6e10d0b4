//! Small MCP servers inside the program, so that a fresh checkout has something to put the gateway in front
//! of: one that speaks the legacy era on stdio, one that speaks the modern era on stdio, one that speaks
//! both over HTTP. They are ordinary servers, correct by the spec, and useful for trying a client.
//!
//! Must not know: the gateway, its configuration, its metrics.

mod dice;
mod docs;
mod echo;
mod http;
mod protocol;
mod stdio;
#[cfg(test)]
mod tests;
mod tool;
mod words;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use protocol::Server;

/// The demo servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demo {
    /// Counts words. Legacy era.
    Legacy,
    /// Dice, units, time. Modern era.
    Modern,
    /// A few pages about MCP, searched and summarized. Both eras.
    Http,
}

impl Demo {
    /// All demo servers.
    pub const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::Http];

    fn server(self) -> &'static Server {
        match self {
            Self::Legacy => &words::SERVER,
            Self::Modern => &dice::SERVER,
            Self::Http => &docs::SERVER,
        }
    }
}

/// Serves on a pair of byte streams, one message a line, until `stdin` ends. Calls under way then get two
/// more seconds.
///
/// Bounds: a line of 64 MiB, 64 answers waiting for a slow reader, 256 slow calls at a time.
/// Cancel safe: dropping the future ends every call.
///
/// # Errors
/// If reading or writing fails.
pub async fn run_stdio<R, W>(demo: Demo, stdin: R, stdout: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    stdio::run(demo.server(), stdin, stdout).await
}

/// Serves [`Demo::Http`] as Streamable HTTP at `/mcp` until `shutdown`, then for at most two seconds more.
/// Answers to loopback names only.
///
/// # Errors
/// If the listener fails for good.
pub async fn http(listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    http::serve(Demo::Http.server(), listener, shutdown).await
}
