//! The allocator service: gRPC by its content type, and the REST route beside it.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use berth_api::allocation::proto::allocation_service_server::AllocationServiceServer;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use tonic::Code;
use tonic::service::Routes;
use tower::ServiceExt as _;

use super::gate::Gate;
use super::grpc::{Grpc, LARGEST};
use super::listen::{Caller, Entrance};
use super::{json, words};
use crate::office::Office;

const PATH: &str = "/gameserverallocation";
/// How much of a body is read: a client that is cut off while it sends hears no answer.
const MOST_READ: usize = 4 * LARGEST;
const TOO_LARGE: &str = "the body could not be read, or has more than 1 MiB";

/// The allocator service, over gRPC, REST or both.
#[derive(Clone)]
pub struct AllocatorService {
    office: Office,
    gate: Gate,
    unallocated: u16,
    grpc: Option<axum::Router>,
    is_rest: bool,
}

impl AllocatorService {
    /// A service over both. `health` answers `grpc.health.v1.Health`; `unallocated` is the HTTP status that tells that
    /// there is no server.
    pub fn new<H>(office: Office, gate: Gate, unallocated: u16, health: H) -> Self
    where
        H: tower::Service<Request<tonic::body::Body>, Error = std::convert::Infallible>
            + tonic::server::NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        H::Response: axum::response::IntoResponse,
        H::Future: Send + 'static,
    {
        let grpc = Grpc { office: office.clone(), gate: gate.clone(), unallocated };
        let service = AllocationServiceServer::new(grpc).max_decoding_message_size(LARGEST);
        let routes = Routes::new(service).add_service(health);
        Self { office, gate, unallocated, grpc: Some(routes.into_axum_router()), is_rest: true }
    }

    /// The same without REST.
    #[must_use]
    pub fn only_grpc(mut self) -> Self {
        self.is_rest = false;
        self
    }

    /// The same without gRPC.
    #[must_use]
    pub fn only_rest(mut self) -> Self {
        self.grpc = None;
        self
    }

    async fn rest(&self, request: Request<Body>, caller: &Caller) -> Response {
        match (request.uri().path(), request.method()) {
            (PATH, &Method::POST) => {}
            (PATH, _) => return told(Code::Unimplemented, "Method Not Allowed"),
            _ => return told(Code::NotFound, "Not Found"),
        }
        let visitor = match self.gate.let_in(caller, request.headers()).await {
            Ok(visitor) => visitor,
            Err(status) => return told(status.code(), status.message()),
        };
        let body = match Limited::new(request.into_body(), MOST_READ).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return told(Code::OutOfRange, TOO_LARGE),
        };
        if body.len() > LARGEST {
            return told(Code::OutOfRange, TOO_LARGE);
        }
        let request = match json::request(&body) {
            Ok(request) => request,
            Err(error) => return told(Code::InvalidArgument, &error.to_string()),
        };
        if let Err(status) = self.gate.admit(&visitor, &request.namespace).await {
            return told(status.code(), status.message());
        }
        let served = self.office.serve(words::read(request)).await;
        match words::answer(served, self.unallocated) {
            Ok(response) => written(StatusCode::OK, &json::response(&response)),
            Err(status) => told(status.code(), status.message()),
        }
    }
}

impl Entrance for AllocatorService {
    async fn answer(&self, mut request: Request<Body>, caller: Caller) -> Response {
        let is_grpc = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        match &self.grpc {
            Some(grpc) if is_grpc || !self.is_rest => {
                request.extensions_mut().insert(caller);
                grpc.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
            }
            Some(_) | None => self.rest(request, &caller).await,
        }
    }
}

fn told(code: Code, message: &str) -> Response {
    let status = StatusCode::from_u16(words::status_of(code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    written(status, &json::error(code, message))
}

fn written(status: StatusCode, value: &serde_json::Value) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, [kind], value.to_string()).into_response()
}
