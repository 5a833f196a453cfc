//! What the games speak: one [`Desk`] per listener answers gRPC or REST for the server that the listener belongs to.
//!
//! Who calls is told by the socket alone; nothing in a request names a server. A desk promises that neither a slow
//! client nor a broken one costs anybody but itself, and that open streams end only with the server or this process.

pub(crate) mod accept;
mod alpha;
mod beta;
mod failure;
mod grpc;
mod json;
mod rest;
mod route;
mod unary;
mod websocket;

use std::sync::Arc;

use berth_api::sdk::v1::GameServer;
use tonic::{Code, Status};

use crate::metrics::{Call, ServeMetrics, Transport};
use crate::seat::Seat;
use crate::server::session::Session;
use crate::server::{Answer, Refusal, Request};

/// Largest message of a game: as large as all annotations of an object may be, and then some.
pub(crate) const LARGEST_MESSAGE: usize = 1024 * 1024;

/// Answers calls for one server over one transport, and counts them.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    seat: Arc<Seat>,
    transport: Transport,
    metrics: ServeMetrics,
}

impl Desk {
    pub(crate) fn new(seat: Arc<Seat>, transport: Transport, metrics: ServeMetrics) -> Self {
        Self { seat, transport, metrics }
    }

    /// The game asks for something.
    async fn ask(&self, call: Call, request: Request) -> Result<Answer, Refusal> {
        let outcome = self.seat.ask(request).await;
        self.ended(call, outcome.as_ref().map_or_else(code, |_| Code::Ok));
        outcome
    }

    /// The game reads what it may have changed.
    async fn look<T>(
        &self,
        call: Call,
        read: impl FnOnce(&Session) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let outcome = self.seat.look(read).await;
        self.ended(call, outcome.as_ref().map_or_else(code, |_| Code::Ok));
        outcome
    }

    /// The server as it is now.
    async fn game_server(&self) -> Result<Arc<GameServer>, Refusal> {
        let outcome = self.seat.game_server().await;
        self.ended(Call::GetGameServer, outcome.as_ref().map_or_else(code, |_| Code::Ok));
        outcome
    }

    fn ended(&self, call: Call, code: Code) {
        self.metrics.ended(self.transport, call, code);
    }
}

/// The code that a refusal has on the wire.
fn code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Metadata(_) | Refusal::TooMuch(_) => Code::InvalidArgument,
        // What clients that exist are told, whatever it is.
        Refusal::Counter(_) | Refusal::List(_) | Refusal::Players(_) => Code::Unknown,
        Refusal::Full(_)
        | Refusal::NotIntroduced
        | Refusal::NotRead
        | Refusal::NotWritten { .. }
        | Refusal::NotWrittenInTime { .. }
        | Refusal::Gone => Code::Unavailable,
    }
}

/// A refusal as it is told.
fn status(refusal: &Refusal) -> Status {
    Status::new(code(refusal), refusal.to_string())
}
