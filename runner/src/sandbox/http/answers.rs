//! Requests that somebody answers in place of the network.

use bytes::Bytes;
use http::{Request, Response, Uri};
use wasmtime_wasi_http::Error;

use crate::sandbox::services::HttpAnswers;

use super::body::{Outgoing, collected};
use super::fault::Fault;
use super::job::JobCalls;
use super::target::Target;

/// Reads all of the request, and asks for its answer.
pub(super) async fn answer(
    answers: &dyn HttpAnswers,
    job: &JobCalls,
    target: &Target,
    request: Request<Outgoing>,
) -> Result<Response<Bytes>, Fault> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::builder()
        .scheme(target.scheme.as_str())
        .authority(target.host_header())
        .path_and_query(path)
        .build()
        .map_err(|_| Fault::new(Error::HttpRequestUriInvalid, "its path is none"))?;
    let body = collected(body, job).await?;
    let answered = answers.answer(Request::from_parts(head, body)).await;
    let answer = answered.map_err(|why| Fault::new(Error::DestinationNotFound, &why))?;
    if !job.count_fields(answer.headers()) || !job.count_received(answer.body().len()) {
        return Err(job.received_too_much());
    }
    Ok(answer)
}
