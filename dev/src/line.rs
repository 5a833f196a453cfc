//! A line to a server that can be slow, silent, or cut: what networks do to watches and writes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What goes through at a time.
const PIECE: usize = 16 * 1024;
/// Whoever waits for the end of a silence is woken by it; this is only so that nobody waits without end.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Passes connections on to a server, for as long as it lives.
///
/// Threads of its own carry it, so that a test's runtime that is busy makes nothing slower than was ordered.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    delay: Duration,
    is_silent: bool,
    is_over: bool,
    /// Both ends of every connection.
    open: BTreeMap<u64, [TcpStream; 2]>,
    last: u64,
}

impl Line {
    /// A line to this server, from the same address of this machine.
    ///
    /// # Errors
    /// There is no port.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((server.ip(), 0))?;
        let line = Self { address: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&line.shared);
        thread::Builder::new().name("line".to_owned()).spawn(move || shared.accept(&listener, server))?;
        Ok(line)
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every piece takes so much longer from now on.
    pub fn delay(&self, delay: Duration) {
        self.shared.orders().delay = delay;
    }

    /// Whether nothing comes through, in either direction, and nobody is told. What was sent meanwhile comes later.
    pub fn silence(&self, is_silent: bool) {
        self.shared.orders().is_silent = is_silent;
        self.shared.changed.notify_all();
    }

    /// Ends the open connections that `chosen` says yes to, by their place among them; gives how many that were.
    pub fn cut(&self, mut chosen: impl FnMut(usize) -> bool) -> usize {
        let orders = self.shared.orders();
        let cut =
            orders.open.values().enumerate().filter(|(place, _)| chosen(*place)).map(|(_, ends)| end(ends));
        cut.count()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut orders = self.shared.orders();
        orders.is_over = true;
        orders.open.values().for_each(end);
        drop(orders);
        self.shared.changed.notify_all();
        // Who waits for a connection gets one, and sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// Neither end hears of the other any more. An end that is gone already is what is wanted.
fn end(ends: &[TcpStream; 2]) {
    for stream in ends {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, server: SocketAddr) {
        for near in listener.incoming() {
            if self.orders().is_over {
                return;
            }
            // A server that is not there is a connection that ends at once, as it would be without us.
            let _ = near.and_then(|near| self.pass_on(near, server));
        }
    }

    fn pass_on(self: &Arc<Self>, near: TcpStream, server: SocketAddr) -> io::Result<()> {
        let far = TcpStream::connect(server)?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let number = {
            let mut orders = self.orders();
            orders.last += 1;
            let number = orders.last;
            orders.open.insert(number, [near.try_clone()?, far.try_clone()?]);
            number
        };
        for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            let shared = Arc::clone(self);
            thread::Builder::new().name("line".to_owned()).spawn(move || shared.carry(number, from, to))?;
        }
        Ok(())
    }

    /// Until what was read just now may come through.
    fn wait(&self) {
        let mut orders = self.orders();
        let due = Instant::now() + orders.delay;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if orders.is_over || (left.is_zero() && !orders.is_silent) {
                return;
            }
            let pause = if orders.is_silent { LONGEST_PAUSE } else { left };
            let woken = self.changed.wait_timeout(orders, pause);
            orders = woken.map_or_else(|poisoned| poisoned.into_inner().0, |(orders, _)| orders);
        }
    }

    /// One direction, until one end has enough.
    fn carry(&self, number: u64, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            self.wait();
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        if let Some(ends) = self.orders().open.remove(&number) {
            end(&ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says back what it hears.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                thread::spawn(move || io::copy(&mut stream.try_clone().expect("a clone"), &mut stream));
            }
        });
        address
    }

    fn connect(line: &Line) -> TcpStream {
        let stream = TcpStream::connect(line.address()).expect("a line");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        stream
    }

    fn is_answered(stream: &mut TcpStream, word: [u8; 5]) -> bool {
        let mut heard = [0; 5];
        stream.write_all(&word).and_then(|()| stream.read_exact(&mut heard)).is_ok() && heard == word
    }

    #[test]
    fn what_is_said_comes_through_later_when_ordered() {
        let line = Line::to(echo()).expect("a line");
        let mut stream = connect(&line);
        assert!(is_answered(&mut stream, *b"hello"));
        line.delay(Duration::from_millis(50));
        let asked = Instant::now();
        assert!(is_answered(&mut stream, *b"later"));
        assert!(asked.elapsed() >= Duration::from_millis(100), "{:?}", asked.elapsed());
    }

    #[test]
    fn silence_loses_nothing() {
        let line = Line::to(echo()).expect("a line");
        let mut stream = connect(&line);
        assert!(is_answered(&mut stream, *b"hello"));
        line.silence(true);
        stream.write_all(b"quiet").expect("room for five letters");
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a limit");
        let mut heard = [0; 5];
        let error = stream.read_exact(&mut heard).expect_err("nothing comes");
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        line.silence(false);
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        stream.read_exact(&mut heard).expect("what was kept");
        assert_eq!(&heard, b"quiet");
    }

    #[test]
    fn the_chosen_are_cut_and_others_go_on() {
        let line = Line::to(echo()).expect("a line");
        let (mut first, mut second) = (connect(&line), connect(&line));
        assert!(is_answered(&mut first, *b"first") && is_answered(&mut second, *b"other"));
        assert_eq!(line.cut(|place| place == 0), 1);
        let cut = [is_answered(&mut first, *b"first"), is_answered(&mut second, *b"other")];
        assert_eq!(cut.iter().filter(|answered| **answered).count(), 1);
        assert!(is_answered(&mut connect(&line), *b"again"));
        drop(line);
        assert!(!is_answered(&mut second, *b"still"));
    }
}
