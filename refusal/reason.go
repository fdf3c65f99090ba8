package refusal

import "connectrpc.com/connect"

// Domain is the domain of each ErrorInfo.
const Domain = "dbcontroller.dev"

// Reason is the reason for a refused call. The zero value is no reason.
type Reason string

// The causes of these reasons pass. After all of them except OutcomeUnknown the refused write had
// no effect, and a client may repeat the same call after a moment (Again). After OutcomeUnknown
// it reads first.
const (
	// Held means that writes, or reads of a sealed version, waited for a switch for too long, or
	// too many of them wait.
	Held Reason = "HELD"
	// Fenced means that the database refused the write, because the active version changed in the
	// meantime.
	Fenced Reason = "FENCED"
	// OutcomeUnknown means that the database's answer was lost. The write may or may not have
	// happened; a read shows it.
	OutcomeUnknown Reason = "OUTCOME_UNKNOWN"
	// DatabaseUnavailable means that the database could not be reached.
	DatabaseUnavailable Reason = "DATABASE_UNAVAILABLE"
	// Busy means that the server has reached its limit of parallel requests, for example while a
	// switch holds many. It has not processed this one.
	Busy Reason = "BUSY"
	// NotReady means that the server waits for its deployment, or for a controller to create its
	// namespace.
	NotReady Reason = "NOT_READY"
	// ServerTooOld means that this server does not know the active version. Another server may.
	ServerTooOld Reason = "SERVER_TOO_OLD"
	// Stopping means that the process is stopping.
	Stopping Reason = "STOPPING"
	// StreamEnded means that the stream cannot continue after a switch. A new one can start.
	StreamEnded Reason = "STREAM_ENDED"
	// CoordinationUnavailable means that a controller cannot reach the coordination store, or
	// something else that its answer needs. Services continue without it and never return this.
	CoordinationUnavailable Reason = "COORDINATION_UNAVAILABLE"
	// RegionUnavailable means that the region that owns the record could not be reached. The write
	// was not sent.
	RegionUnavailable Reason = "REGION_UNAVAILABLE"
	// Moving means that the record moves to another region. MetaRegion names that region.
	Moving Reason = "MOVING"
)

// After these reasons something has to change: the client, its request, or the service. The refused
// write had no effect.
const (
	// VersionNotActive means that the version can be read, but not written yet.
	VersionNotActive Reason = "VERSION_NOT_ACTIVE"
	// VersionNotReady means that the version has no data yet, so reads would find nothing.
	VersionNotReady Reason = "VERSION_NOT_READY"
	// VersionRetired means that the data of the version is gone.
	VersionRetired Reason = "VERSION_RETIRED"
	// VersionNotServed means that this server has no handler for that API version. MetaOldest and
	// MetaNewest give the served range.
	VersionNotServed Reason = "VERSION_NOT_SERVED"
	// MethodDiscontinued means that the method has no counterpart in the active version.
	MethodDiscontinued Reason = "METHOD_DISCONTINUED"
	// TooLarge means that a record, or the sum of a call's writes, exceeds the database's limit.
	TooLarge Reason = "TOO_LARGE"
	// NotUnique means that another record already has the value in a unique index.
	NotUnique Reason = "NOT_UNIQUE"
	// StillReferenced means that other resources refer to what would be deleted. MetaReferrers gives
	// their number.
	StillReferenced Reason = "STILL_REFERENCED"
	// Refused means that the database never accepts this content, because of a validator or a
	// reserved field.
	Refused Reason = "REFUSED"
	// Unreadable means that the stored record is damaged, and an operator must examine it.
	Unreadable Reason = "UNREADABLE"
	// KeyMissing means that the server lacks the encryption key of the records.
	KeyMissing Reason = "KEY_MISSING"
	// NotInThisState means that the deployment's state does not allow an operator's request, or the
	// request needs the confirmation that the text names. Services never return this.
	NotInThisState Reason = "NOT_IN_THIS_STATE"
	// ControllerTooOld means that a newer binary than this controller wrote the deployment's
	// record. Services never return this.
	ControllerTooOld Reason = "CONTROLLER_TOO_OLD"
	// NotOwner means that another region owns the record, whose copy here is read-only. MetaRegion
	// names the region.
	NotOwner Reason = "NOT_OWNER"
	// PartlyDone means that a stream of messages ended early, and that the messages before were done. A
	// client sends the others in a new call.
	PartlyDone Reason = "PARTLY_DONE"
	// Full means that a controller or a coordination store has reached a limit. The text names the
	// limit and advice. Services never return this.
	Full Reason = "FULL"
)

// Names in the metadata.
const (
	MetaService = "service" // a proto service, or the part of its name before the version
	MetaMethod  = "method"
	MetaVersion = "version" // requested version
	MetaOldest  = "oldest"  // oldest served version
	MetaNewest  = "newest"
	MetaActive  = "active" // version of the database
	MetaRegion  = "region" // that owns the record
	// MetaReferrers is the number of resources, such as "3". "10000+" means more than that.
	MetaReferrers = "referrers"
)

// row is the code of a reason.
type row struct {
	reason Reason
	code   connect.Code
}

var rows = []row{
	{Held, connect.CodeUnavailable},
	{Fenced, connect.CodeUnavailable},
	{OutcomeUnknown, connect.CodeUnavailable},
	{DatabaseUnavailable, connect.CodeUnavailable},
	{Busy, connect.CodeUnavailable},
	{NotReady, connect.CodeUnavailable},
	{ServerTooOld, connect.CodeUnavailable},
	{Stopping, connect.CodeUnavailable},
	{StreamEnded, connect.CodeUnavailable},
	{CoordinationUnavailable, connect.CodeUnavailable},
	{RegionUnavailable, connect.CodeUnavailable},
	{Moving, connect.CodeUnavailable},
	{VersionNotActive, connect.CodeFailedPrecondition},
	{VersionNotReady, connect.CodeNotFound},
	{VersionRetired, connect.CodeNotFound},
	{VersionNotServed, connect.CodeUnimplemented},
	{MethodDiscontinued, connect.CodeUnimplemented},
	{TooLarge, connect.CodeInvalidArgument},
	{NotUnique, connect.CodeFailedPrecondition},
	{StillReferenced, connect.CodeFailedPrecondition},
	{Refused, connect.CodeInvalidArgument},
	{Unreadable, connect.CodeDataLoss},
	{KeyMissing, connect.CodeFailedPrecondition},
	{NotInThisState, connect.CodeFailedPrecondition},
	{ControllerTooOld, connect.CodeFailedPrecondition},
	{NotOwner, connect.CodeFailedPrecondition},
	{PartlyDone, connect.CodeAborted},
	{Full, connect.CodeResourceExhausted},
}

// Reasons returns every Reason, in the order of docs/errors.md. The caller owns the slice.
func Reasons() []Reason {
	var out []Reason
	for _, r := range rows {
		out = append(out, r.reason)
	}
	return out
}

// Code returns the error code of a reason, or CodeInternal for an unknown reason.
func (r Reason) Code() connect.Code {
	for _, row := range rows {
		if row.reason == r {
			return row.code
		}
	}
	return connect.CodeInternal
}

// Again reports whether a client may repeat the same call after a moment, because the refused write
// had no effect and the cause passes. The code alone does not show this: OutcomeUnknown has the
// same code, and Again returns false for it.
func (r Reason) Again() bool { return r.Code() == connect.CodeUnavailable && r != OutcomeUnknown }
