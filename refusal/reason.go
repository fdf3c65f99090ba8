package refusal

import "connectrpc.com/connect"

// Domain is that of each ErrorInfo.
const Domain = "dbcontroller.dev"

// Reason is why a call was refused.
type Reason string

// A client that gets one of these can call again as it is, after a moment; but for OutcomeUnknown
// the refused write had no effect.
const (
	// Held: writes, or reads of what is sealed, waited for a switch as long as they may, or too
	// many do.
	Held Reason = "HELD"
	// Fenced: the database refused the write, because the active version changed meanwhile.
	Fenced Reason = "FENCED"
	// OutcomeUnknown: the answer of the database was lost. What the call writes may be there or
	// not; a read tells.
	OutcomeUnknown Reason = "OUTCOME_UNKNOWN"
	// DatabaseUnavailable: the database could not be reached.
	DatabaseUnavailable Reason = "DATABASE_UNAVAILABLE"
	// Busy: the server answers as many requests as it may at the same time, as in a switch that
	// holds too many. It has not looked at this one.
	Busy Reason = "BUSY"
	// NotReady: the server waits for its deployment, or for a controller that makes its
	// namespace.
	NotReady Reason = "NOT_READY"
	// ServerTooOld: the active version is one that this server does not know. Another one may.
	ServerTooOld Reason = "SERVER_TOO_OLD"
	// Stopping: the process ends.
	Stopping Reason = "STOPPING"
	// StreamEnded: the stream cannot go on over the switch that has been. A new one can.
	StreamEnded Reason = "STREAM_ENDED"
	// CoordinationUnavailable: the coordination store, or what else a controller needs for its
	// answer, cannot be reached. Services never answer so: they go on without it.
	CoordinationUnavailable Reason = "COORDINATION_UNAVAILABLE"
)

// After one of these something has to change: the client, what it asks for, or the service. The
// refused call had no effect.
const (
	// VersionNotActive: the version can be read and not yet be written.
	VersionNotActive Reason = "VERSION_NOT_ACTIVE"
	// VersionNotReady: the version has no data yet, so that nothing is found in it.
	VersionNotReady Reason = "VERSION_NOT_READY"
	// VersionRetired: the data of the version are gone.
	VersionRetired Reason = "VERSION_RETIRED"
	// VersionNotServed: no handler of that version of the API is here. MetaOldest and MetaNewest
	// are the range that is served.
	VersionNotServed Reason = "VERSION_NOT_SERVED"
	// MethodDiscontinued: the method has no counterpart in the version that serves.
	MethodDiscontinued Reason = "METHOD_DISCONTINUED"
	// TooLarge: a record, or all that one call writes, is more than the database takes.
	TooLarge Reason = "TOO_LARGE"
	// NotUnique: another record has what a unique index lets one have.
	NotUnique Reason = "NOT_UNIQUE"
	// Refused: the database never takes what is written: a validator, or a reserved field.
	Refused Reason = "REFUSED"
	// Unreadable: what is stored of a record is none that was written, and a person must look.
	Unreadable Reason = "UNREADABLE"
	// KeyMissing: the server does not have the key that records are encrypted with.
	KeyMissing Reason = "KEY_MISSING"
	// NotInThisState: what an operator asks a controller for is not possible in the state that the
	// deployment is in, or wants a confirmation that the text names. Services never answer so.
	NotInThisState Reason = "NOT_IN_THIS_STATE"
	// ControllerTooOld: the record of the deployment was written by a newer binary than that of this
	// controller. Services never answer so.
	ControllerTooOld Reason = "CONTROLLER_TOO_OLD"
	// Full: there are as many of something as one controller, or one coordination store, may have;
	// the text names it, and what to do. Services never answer so.
	Full Reason = "FULL"
)

// Names in the metadata.
const (
	MetaService = "service" // a proto service, or the part of its name before the version
	MetaMethod  = "method"
	MetaVersion = "version" // that was asked for
	MetaOldest  = "oldest"  // version that is served
	MetaNewest  = "newest"
	MetaActive  = "active" // version of the database
)

// row is what belongs to a reason.
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
	{VersionNotActive, connect.CodeFailedPrecondition},
	{VersionNotReady, connect.CodeNotFound},
	{VersionRetired, connect.CodeNotFound},
	{VersionNotServed, connect.CodeUnimplemented},
	{MethodDiscontinued, connect.CodeUnimplemented},
	{TooLarge, connect.CodeInvalidArgument},
	{NotUnique, connect.CodeFailedPrecondition},
	{Refused, connect.CodeInvalidArgument},
	{Unreadable, connect.CodeDataLoss},
	{KeyMissing, connect.CodeFailedPrecondition},
	{NotInThisState, connect.CodeFailedPrecondition},
	{ControllerTooOld, connect.CodeFailedPrecondition},
	{Full, connect.CodeResourceExhausted},
}

// Reasons are all there are, in the order of docs/errors.md.
func Reasons() []Reason {
	var out []Reason
	for _, r := range rows {
		out = append(out, r.reason)
	}
	return out
}

// Code is that of the errors with a reason; internal for one that there is not.
func (r Reason) Code() connect.Code {
	for _, row := range rows {
		if row.reason == r {
			return row.code
		}
	}
	return connect.CodeInternal
}

// Again reports whether the same call can be made again after a moment: it had no effect, and
// what has refused it passes. The code alone does not tell, because of OutcomeUnknown.
func (r Reason) Again() bool { return r.Code() == connect.CodeUnavailable && r != OutcomeUnknown }
