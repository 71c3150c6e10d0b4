//! One connection of a client, used for one request after the other.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::client::{Request, Response};
use crate::support::http::{Body, Head};
use crate::support::json;
use crate::support::turn::Received;

/// After how long a rest it is not used again: well before the gateway closes it (`header_timeout`).
const REST: Duration = Duration::from_secs(1);

/// A connection that is opened when it is needed.
pub struct Connection {
    address: SocketAddr,
    patience: Duration,
    open: Option<(BufReader<TcpStream>, Instant)>,
}

impl Connection {
    /// One to `address`, on which no answer takes longer than `patience`.
    pub fn new(address: SocketAddr, patience: Duration) -> Self {
        Self { address, patience, open: None }
    }

    /// Sends a request and reads the whole answer.
    pub fn exchange(&mut self, request: &Request) -> io::Result<Response> {
        let mut reader = self.reader()?;
        reader.get_ref().write_all(&request.bytes())?;
        let head = Head::read(&mut reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.second().parse().map_err(io::Error::other)?;
        let body = match status {
            202 | 204 | 304 if head.header("content-length").is_none_or(|length| length == "0") => Vec::new(),
            _ => Body::new(head.framing()).whole(&mut reader)?,
        };
        let is_last = head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !is_last {
            self.open = Some((reader, Instant::now()));
        }
        Ok(Response { status, head, body })
    }

    fn reader(&mut self) -> io::Result<BufReader<TcpStream>> {
        if let Some((reader, since)) = self.open.take().filter(|(_, since)| since.elapsed() < REST) {
            let _age = since;
            return Ok(reader);
        }
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        Ok(BufReader::new(stream))
    }
}

/// What came for one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A result, whose text this is.
    Right(String),
    /// A result that says that it is an error.
    Failed(String),
    /// A result that asks something.
    Asked(String),
    /// A JSON-RPC error.
    Error(String),
    /// A status other than 200.
    Status(u16, String),
    /// The answer did not come.
    Lost(String),
    /// It came more than once.
    Doubled(String),
}

impl Answer {
    /// Reads the answer to `body` out of what came.
    pub fn of(body: &str, response: io::Result<Response>) -> Self {
        let response = match response {
            Ok(response) => response,
            Err(error) => return Self::Lost(error.to_string()),
        };
        if response.status != 200 {
            return Self::Status(response.status, response.text());
        }
        Self::among(body, &response.messages())
    }

    /// Finds it among messages.
    pub fn among(body: &str, messages: &[String]) -> Self {
        let id = json::get(body, &["id"]);
        let is_own = |message: &&String| {
            json::get(message, &["id"]) == id && json::get(message, &["method"]).is_none()
        };
        let own: Vec<_> = messages.iter().filter(is_own).collect();
        match *own {
            [] => Self::Lost(format!("{body} among {messages:?}")),
            [message] => Self::read(message),
            _ => Self::Doubled(format!("{own:?}")),
        }
    }

    fn read(message: &str) -> Self {
        if let Some(error) = json::get(message, &["error"]) {
            return Self::Error(error.to_owned());
        }
        match (json::get(message, &["result", "isError"]), json::string(message, &["result", "resultType"])) {
            (Some("true"), _) => Self::Failed(message.to_owned()),
            (_, Some(kind)) if kind == "input_required" => Self::Asked(message.to_owned()),
            _ => Self::Right(message.to_owned()),
        }
    }

    /// Its name in the books.
    pub fn name(&self) -> String {
        match self {
            Self::Right(_) => "answered".to_owned(),
            Self::Failed(_) => "failed, in words".to_owned(),
            Self::Asked(_) => "asked".to_owned(),
            Self::Error(error) => format!("error {}", json::get(error, &["code"]).unwrap_or("?")),
            Self::Status(status, _) => format!("status {status}"),
            Self::Lost(_) => "lost".to_owned(),
            Self::Doubled(_) => "doubled".to_owned(),
        }
    }
}

/// The token of a call, as a server sees it.
pub fn token_of(received: &Received) -> String {
    received.argument("token").unwrap_or_default()
}
