//! The allocator service over gRPC.

use berth_api::allocation::proto;
use berth_api::allocation::proto::allocation_service_server::AllocationService;
use tonic::{Request, Response, Status};

use super::gate::Gate;
use super::listen::Caller;
use super::words;
use crate::office::Office;

/// Largest request, in bytes.
pub(super) const LARGEST: usize = 1024 * 1024;

pub(super) struct Grpc {
    pub(super) office: Office,
    pub(super) gate: Gate,
    /// The HTTP status that tells that there is no server.
    pub(super) unallocated: u16,
}

#[tonic::async_trait]
impl AllocationService for Grpc {
    async fn allocate(
        &self,
        request: Request<proto::AllocationRequest>,
    ) -> Result<Response<proto::AllocationResponse>, Status> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let visitor = self.gate.let_in(&caller, request.metadata().as_ref()).await?;
        self.gate.admit(&visitor, &request.get_ref().namespace).await?;
        let served = self.office.serve(words::read(request.into_inner())).await;
        words::answer(served, self.unallocated).map(Response::new)
    }
}
