package throttle

// Cause is the reason for a limit on bulk work, in one word for metrics. Reason returns a text for
// operators.
type Cause string

const (
	// The values of a Cause.
	CauseNone      Cause = ""
	CausePaused    Cause = "paused"    // by an operator
	CauseWindow    Cause = "window"    // outside the time of day
	CauseMeasuring Cause = "measuring" // no answer from the databases yet
	CauseSource    Cause = "source"    // the source is under pressure
	CauseTarget    Cause = "target"    // the target is under pressure
	CauseErrors    Cause = "errors"    // errors of this controller's own work
	CauseRate      Cause = "rate"      // a configured rate
	CauseTurn      Cause = "turn"      // other deployments of the process come first
)

// Causes lists every Cause except CauseNone.
var Causes = []Cause{CausePaused, CauseWindow, CauseMeasuring, CauseSource, CauseTarget, CauseErrors, CauseRate, CauseTurn}
