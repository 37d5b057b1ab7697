//! Which error has which status and code.

use http::StatusCode;
use rejoin_core::message::ParseError;

use super::body::{INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, UNAVAILABLE};
use crate::delete::DeleteError;
use crate::get::GetError;
use crate::headers::HeaderError;
use crate::initialize::InitializeError;
use crate::passthrough::{ExchangeError, PassError};
use crate::post::{BodyError, BoundError, PostError};
use crate::upstream::OpenError;

/// When to try again what was refused for lack of room.
const RETRY_AFTER_MS: u64 = 1_000;

/// How an error is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// JSON-RPC error code.
    pub(super) code: i64,
    /// When it may be sent again; nothing was admitted.
    pub(super) retry_after_ms: Option<u64>,
    /// True if clients that lose their session on it get 200 instead.
    pub(super) softens: bool,
}

/// A limit is reached; nothing was admitted.
const OVERLOADED: Failure = Failure {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: UNAVAILABLE,
    retry_after_ms: Some(RETRY_AFTER_MS),
    softens: true,
};

/// In sessions 404 means that the session is gone, and nothing else (spec SES-7).
const UNKNOWN_SESSION: Failure = refused(StatusCode::NOT_FOUND, INVALID_REQUEST, false);
const BAD_REQUEST: Failure = refused(StatusCode::BAD_REQUEST, INVALID_REQUEST, true);

const fn refused(status: StatusCode, code: i64, softens: bool) -> Failure {
    Failure { status, code, retry_after_ms: None, softens }
}

pub(super) fn of_header(error: &HeaderError) -> Failure {
    let status = match error {
        HeaderError::ForeignHost { .. } | HeaderError::ForeignOrigin { .. } => {
            StatusCode::FORBIDDEN
        }
        HeaderError::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        HeaderError::CannotAcceptBoth | HeaderError::CannotAcceptStream => {
            StatusCode::NOT_ACCEPTABLE
        }
        HeaderError::BadHost
        | HeaderError::UnsupportedRevision { .. }
        | HeaderError::ManyRevisions
        | HeaderError::BadSessionId
        | HeaderError::NoSession
        | HeaderError::BadIdempotencyKey => return BAD_REQUEST,
    };
    refused(status, INVALID_REQUEST, false)
}

pub(super) fn of_post(error: &PostError) -> Failure {
    match error {
        PostError::Header(error) => of_header(error),
        PostError::Body(BodyError::NoRoom) => OVERLOADED,
        PostError::Body(BodyError::TooLarge { .. })
        | PostError::Bound(BoundError::LongKept { .. }) => {
            refused(StatusCode::PAYLOAD_TOO_LARGE, INVALID_REQUEST, false)
        }
        PostError::Body(BodyError::TooSlow { .. }) => {
            refused(StatusCode::REQUEST_TIMEOUT, INVALID_REQUEST, false)
        }
        PostError::Parse(error) => of_parse(error),
        PostError::Body(BodyError::Cut)
        | PostError::Bound(BoundError::LongName { .. })
        | PostError::Dedup(_)
        | PostError::Stateless
        | PostError::BatchNotAgreed
        | PostError::BatchTooLarge { .. }
        | PostError::InitializeInBatch
        | PostError::InitializeNotRequest => BAD_REQUEST,
        PostError::InitializeUnknown => refused(StatusCode::NOT_FOUND, METHOD_NOT_FOUND, false),
        PostError::UnknownSession => UNKNOWN_SESSION,
        PostError::Initialize(error) => of_initialize(error),
        PostError::Pass(error) => of_pass(error),
        PostError::Store(_) | PostError::Draining | PostError::Overloaded => OVERLOADED,
    }
}

fn of_parse(error: &ParseError) -> Failure {
    let code = if error.json_rpc_code() == PARSE_ERROR { PARSE_ERROR } else { INVALID_REQUEST };
    refused(StatusCode::BAD_REQUEST, code, true)
}

fn of_initialize(error: &InitializeError) -> Failure {
    match error {
        InitializeError::AlreadyInitialized | InitializeError::Open(OpenError::NotARequest) => {
            BAD_REQUEST
        }
        InitializeError::Draining
        | InitializeError::TooManySessions { .. }
        | InitializeError::LogFull { .. }
        | InitializeError::Usage(_)
        | InitializeError::Create(_)
        | InitializeError::Commit(_)
        | InitializeError::Origin(_)
        | InitializeError::NoRandomness
        | InitializeError::Open(OpenError::TooManyChildren { .. }) => OVERLOADED,
        InitializeError::Open(OpenError::TimedOut { .. }) => {
            refused(StatusCode::GATEWAY_TIMEOUT, INTERNAL_ERROR, true)
        }
        InitializeError::Open(_)
        | InitializeError::BadAnswer { .. }
        | InitializeError::StatelessAgreement { .. } => {
            refused(StatusCode::BAD_GATEWAY, INTERNAL_ERROR, true)
        }
    }
}

fn of_pass(error: &PassError) -> Failure {
    match error {
        PassError::Draining | PassError::Seat(_) => OVERLOADED,
        PassError::Exchange(
            ExchangeError::Unreachable { .. }
            | ExchangeError::Lost { .. }
            | ExchangeError::Interim { .. }
            | ExchangeError::Credential { .. },
        )
        | PassError::Stopped { .. } => refused(StatusCode::BAD_GATEWAY, INTERNAL_ERROR, true),
    }
}

pub(super) fn of_get(error: &GetError) -> Failure {
    match error {
        GetError::Header(error) => of_header(error),
        GetError::UnknownSession => UNKNOWN_SESSION,
        GetError::Draining | GetError::Overloaded => OVERLOADED,
    }
}

pub(super) fn of_delete(error: &DeleteError) -> Failure {
    match error {
        DeleteError::Header(error) => of_header(error),
        DeleteError::UnknownSession => UNKNOWN_SESSION,
        DeleteError::Unavailable => OVERLOADED,
    }
}
