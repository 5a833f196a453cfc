//! The task that answers on the local socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::PathBuf;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use berth_api::game_node::GameNodeStatus;
use berth_runtime::CancellationToken;
use berth_runtime::clock::Instant;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};

use super::Deregistrations;
use super::views::{DrainAnswer, DrainRequest, Heard, LeaseView, PlanView, Status, Told};
use crate::drain::Course;
use crate::drain::orders::{Ask, Orders};
use crate::fleetiq::Standing;
use crate::game_server::{Board, Line};
use crate::hook::Holding;
use crate::lease::Authority;

/// Root and the socket's group.
const MODE: u32 = 0o660;

/// Why the socket does not answer.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Something that is no socket stands in its place.
    #[error("{path} exists and is not a socket; remove it, or choose another run folder")]
    Occupied {
        /// Where.
        path: PathBuf,
    },
    /// It could not be made.
    #[error("could not listen on {path}")]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It failed while serving.
    #[error("could not serve the local socket")]
    Serve(#[source] io::Error),
}

/// What the answers are made from.
#[derive(Clone, Debug)]
pub struct Knowledge {
    /// Name of the node.
    pub node: String,
    /// The node's picture.
    pub pictures: watch::Receiver<GameNodeStatus>,
    /// The servers.
    pub board: Board,
    /// The lease.
    pub authority: Authority,
    /// What the node is for.
    pub course: watch::Receiver<Course>,
    /// Whether sessions are ended before the node is gone.
    pub ends_sessions: bool,
    /// The standing with FleetIQ.
    pub standing: watch::Receiver<Standing>,
    /// How a lifecycle hook stands.
    pub holding: watch::Receiver<Holding>,
    /// Where orders go.
    pub orders: Orders,
    /// Where the order to give the instance back goes.
    pub deregistrations: Deregistrations,
}

impl Knowledge {
    fn servers(&self) -> Vec<Line> {
        self.board.lines().borrow().values().cloned().collect()
    }
}

/// Listens. The caller holds the node's lock, so a socket that is there is a dead agent's.
///
/// # Errors
/// The socket cannot be made.
pub fn bind(path: &std::path::Path) -> Result<UnixListener, SocketError> {
    let failed = |source| SocketError::Bind { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed)?,
        Ok(_) => return Err(SocketError::Occupied { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
    Ok(listener)
}

/// Answers until asked to stop.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: UnixListener,
    knowledge: Knowledge,
    stop: CancellationToken,
) -> Result<(), SocketError> {
    let routes = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/drain", post(drain))
        .route("/v1/undrain", post(undrain))
        .route("/v1/deregister", post(deregister))
        .route("/v1/why/{name}", get(why_of_name))
        .route("/v1/why/{namespace}/{name}", get(why))
        .with_state(knowledge);
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        ended = std::future::IntoFuture::into_future(axum::serve(listener, routes)) => {
            ended.map_err(SocketError::Serve)
        }
    }
}

async fn status(State(knowledge): State<Knowledge>) -> Json<Status> {
    let now = Instant::now();
    let claim = knowledge.authority.check(now).ok();
    let lease = LeaseView {
        held: claim.is_some(),
        epoch: claim.as_ref().map_or(0, |claim| claim.epoch.0),
        remaining_milliseconds: claim
            .map(|claim| u64::try_from(claim.remaining(now).as_millis()).unwrap_or(u64::MAX))
            .unwrap_or_default(),
    };
    let picture = knowledge.pictures.borrow().clone();
    let course = knowledge.course.borrow().clone();
    let standing = knowledge.standing.borrow().clone();
    let holding = knowledge.holding.borrow().clone();
    let heard = Heard { lease, course: &course, standing: &standing, holding: &holding };
    Json(Status::new(&knowledge.node, &picture, heard, knowledge.servers()))
}

/// An answer, or a sentence and the code that it goes with.
type Answer<T> = Result<Json<T>, (StatusCode, Json<Told>)>;

fn refused<T>(status: StatusCode, message: impl Into<String>) -> Answer<T> {
    Err((status, Json(Told { message: message.into() })))
}

async fn drain(State(knowledge): State<Knowledge>, Json(request): Json<DrainRequest>) -> Answer<DrainAnswer> {
    let plan = PlanView::new(&knowledge.servers(), request.deadline, knowledge.ends_sessions);
    if request.plan {
        let course = knowledge.course.borrow().clone();
        return Ok(Json(DrainAnswer::new(&course, plan)));
    }
    let reason = request.reason.unwrap_or_else(|| "ordered on the node".to_owned());
    match knowledge.orders.give(Ask::Drain { reason, deadline: request.deadline }).await {
        Ok(course) => Ok(Json(DrainAnswer::new(&course, plan))),
        Err(why) => refused(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

async fn undrain(State(knowledge): State<Knowledge>) -> Answer<DrainAnswer> {
    match knowledge.orders.give(Ask::Undrain).await {
        Ok(course) => Ok(Json(DrainAnswer::new(&course, PlanView::default()))),
        Err(why) => refused(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

async fn deregister(State(knowledge): State<Knowledge>) -> Answer<Told> {
    let Some(deregistrations) = &knowledge.deregistrations else {
        return refused(StatusCode::CONFLICT, "FleetIQ is not configured on this node");
    };
    let (answer, answered) = oneshot::channel();
    let sent = deregistrations.send(answer).await.is_ok();
    match answered.await {
        Ok(Ok(message)) if sent => Ok(Json(Told { message })),
        Ok(Err(why)) => refused(StatusCode::CONFLICT, why),
        Ok(Ok(_)) | Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "the agent is stopping"),
    }
}

async fn why(
    State(knowledge): State<Knowledge>,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer<Line> {
    one_of(
        &knowledge,
        |line| line.namespace == namespace && line.name == name,
        &format!("{namespace}/{name}"),
    )
}

async fn why_of_name(State(knowledge): State<Knowledge>, Path(name): Path<String>) -> Answer<Line> {
    one_of(&knowledge, |line| line.name == name, &name)
}

fn one_of(knowledge: &Knowledge, is_it: impl Fn(&Line) -> bool, asked: &str) -> Answer<Line> {
    let mut found: Vec<Line> = knowledge.servers().into_iter().filter(is_it).collect();
    match (found.len(), found.pop()) {
        (1, Some(line)) => Ok(Json(line)),
        (_, Some(_)) => refused(
            StatusCode::CONFLICT,
            format!("several namespaces have a game server {asked} on this node; say NAMESPACE/NAME"),
        ),
        (_, None) => refused(
            StatusCode::NOT_FOUND,
            format!("no game server {asked} is on this node; its Events may say where it went"),
        ),
    }
}
