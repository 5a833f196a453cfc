//! The game as a process: started on free ports, asked, and waited for. It is killed when the test lets go of it.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpStream, UdpSocket};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::fake_sdk::FakeSdk;

/// How long anything may take before the test fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Process {
    child: Child,
    log: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
    udp: Option<SocketAddr>,
    tcp: Option<SocketAddr>,
}

impl Process {
    /// Starts the game and waits until it listens.
    pub(crate) async fn start(sdk: &FakeSdk, arguments: &[&str]) -> Self {
        let mut process = Self::launch(sdk.port(), arguments);
        if !arguments.contains(&"--udp=false") {
            process.udp = Some(process.address("listening udp=").await);
        }
        process.tcp = Some(process.address("listening tcp=").await);
        process
    }

    /// Starts the program and waits for nothing.
    pub(crate) fn launch(sdk_port: u16, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_simple-udp"))
            .env_clear()
            .args(["--port", "0", "--bind", "127.0.0.1", "--sdk-host", "127.0.0.1"])
            .args(["--sdk-port", &sdk_port.to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the game starts");
        let log = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, log, seen: Vec::new(), udp: None, tcp: None }
    }

    /// Reads the log until a line begins so.
    pub(crate) async fn line_with(&mut self, beginning: &str) -> String {
        let search = async {
            while let Some(line) = self.log.next_line().await.expect("the log is text") {
                self.seen.push(line.clone());
                if line.starts_with(beginning) {
                    return Some(line);
                }
            }
            None
        };
        let found = timeout(LIMIT, search).await.ok().flatten();
        found.unwrap_or_else(|| panic!("no log line begins with {beginning:?}; seen: {:#?}", self.seen))
    }

    async fn address(&mut self, beginning: &str) -> SocketAddr {
        let line = self.line_with(beginning).await;
        line[beginning.len()..].parse().expect("an address follows")
    }

    /// Sends a datagram and gives back the answer.
    pub(crate) async fn ask(&mut self, line: &str) -> String {
        let exchange = async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
            let address = self.udp.expect("the game listens on UDP");
            socket.send_to(line.as_bytes(), address).await.expect("a datagram can be sent");
            let mut buffer = vec![0; 65_535];
            let (length, _) = socket.recv_from(&mut buffer).await.expect("a datagram can be received");
            String::from_utf8(buffer[..length].to_vec()).expect("the answer is text")
        };
        timeout(LIMIT, exchange)
            .await
            .unwrap_or_else(|_| panic!("no answer to {line:?}; log: {:#?}", self.seen))
    }

    /// Sends lines over TCP, closes that half, and gives back all that is answered.
    pub(crate) async fn converse(&self, lines: &str) -> String {
        let exchange = async {
            let mut stream =
                TcpStream::connect(self.tcp.expect("the game listens on TCP")).await.expect("it accepts");
            stream.write_all(lines.as_bytes()).await.expect("lines can be sent");
            stream.shutdown().await.expect("half can be closed");
            let mut answers = String::new();
            stream.read_to_string(&mut answers).await.expect("the answers are text");
            answers
        };
        timeout(LIMIT, exchange).await.unwrap_or_else(|_| panic!("no answer to {lines:?}"))
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let id = self.child.id().expect("the game runs");
        let status = std::process::Command::new("kill").args(["-TERM", &id.to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the end; the log is read on meanwhile, so that a full pipe holds nobody up.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        let end = async {
            while let Some(line) = self.log.next_line().await.expect("the log is text") {
                self.seen.push(line);
            }
            self.child.wait().await.expect("the game can be waited for").code()
        };
        timeout(LIMIT, end).await.unwrap_or_else(|_| panic!("the game goes on; log: {:#?}", self.seen))
    }

    /// What it said on stderr, once it has ended.
    pub(crate) async fn errors(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().expect("stderr is piped");
        stderr.read_to_string(&mut said).await.expect("stderr is text");
        said
    }
}
