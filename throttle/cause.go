package throttle

// Cause is what holds bulk work back, in one word, for metrics. The texts of Reason are for
// people.
type Cause string

const (
	CauseNone      Cause = ""
	CausePaused    Cause = "paused"    // an operator has paused it
	CauseWindow    Cause = "window"    // outside of the time of day
	CauseMeasuring Cause = "measuring" // the databases do not answer, or were not asked yet
	CauseSource    Cause = "source"    // is under pressure
	CauseTarget    Cause = "target"    // likewise
	CauseErrors    Cause = "errors"    // of this controller's own work
	CauseRate      Cause = "rate"      // that somebody has set
)

// Causes are all but CauseNone.
var Causes = []Cause{CausePaused, CauseWindow, CauseMeasuring, CauseSource, CauseTarget, CauseErrors, CauseRate}
