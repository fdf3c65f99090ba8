package lint

import (
	"fmt"
	"strings"
)

// Report is the result of Run. Its JSON form is stable: fields may be added, and none is renamed or
// removed. Directions are "up" (from the old version to the new one) and "down".
type Report struct {
	Sample     []Read    `json:"sample"`
	Written    []Read    `json:"written,omitempty"` // the sample of the new version
	Groups     int64     `json:"groups"`            // number of groups
	Laws       []Law     `json:"laws"`
	Losses     []Loss    `json:"losses"`
	Failures   []Failure `json:"failures"`
	Collisions Collided  `json:"collisions"`
	Refused    []Refusal `json:"refused,omitempty"` // by the new version's database, with Options.Judge
	Size       Size      `json:"size"`
	Rate       Rate      `json:"rate"`
}

// Read is the number of records of a kind in the sample.
type Read struct {
	Kind    string `json:"kind"`
	Records int64  `json:"records"`
}

// Law is the result for one law of transformers. Says states the law for people. Tried and Broken
// count groups.
type Law struct {
	Name     string    `json:"name"`
	Says     string    `json:"says"`
	Tried    int64     `json:"tried"` // number of groups
	Broken   int64     `json:"broken"`
	Examples []Example `json:"examples,omitempty"` // the first groups that break it
}

// Example is one record and its problem.
type Example struct {
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// Loss is a field that does not survive a direction without the other side's present records.
type Loss struct {
	Direction string `json:"direction"`
	Kind      string `json:"kind"`
	Field     string `json:"field"` // "*" is any item of a list or entry of a map
	// Operation is the operation that loses the field, as the lens writes it. It is empty for an
	// undeclared loss, which breaks a law.
	Operation string   `json:"operation,omitempty"`
	Records   int64    `json:"records"` // records of the sample that lose the field
	Names     []string `json:"names,omitempty"`
}

// Failure is one reason why records cannot be transformed. The engine would park them.
type Failure struct {
	Direction string    `json:"direction"`
	Operation string    `json:"operation,omitempty"`
	Field     string    `json:"field,omitempty"`
	Reason    string    `json:"reason"` // … replaces the values
	Groups    int64     `json:"groups"`
	Examples  []Example `json:"examples"`
}

// Collided reports the keys that several groups of the sample would have in the new version.
type Collided struct {
	Keys     int64       `json:"keys"` // number of such keys
	Examples []Collision `json:"examples,omitempty"`
}

// Collision is one key that several groups would have. Sources names the first two of them.
type Collision struct {
	Kind    string   `json:"kind"`
	Key     string   `json:"key"`
	Sources []string `json:"sources"` // the first two
}

// Size reports documents that are too large for MongoDB.
type Size struct {
	Limit   int       `json:"limit"` // in bytes
	Over    int64     `json:"over"`
	Names   []string  `json:"names,omitempty"`
	Largest *Document `json:"largest,omitempty"` // of the results
}

// Document is the size of one document.
type Document struct {
	Direction string `json:"direction"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Bytes     int    `json:"bytes"`
}

// Rate is the speed of the transformations alone, in records per second on one processor.
type Rate struct {
	Up      float64 `json:"upRecordsPerSecond"`
	Down    float64 `json:"downRecordsPerSecond"`
	Seconds float64 `json:"seconds"` // duration of the whole run
}

// Problems returns a short list of the problems, or nil.
func (r *Report) Problems() []string {
	var out []string
	var broken []string
	for _, l := range r.Laws {
		if l.Broken > 0 {
			broken = append(broken, l.Name)
		}
	}
	if len(broken) > 0 {
		out = append(out, "broken: "+strings.Join(broken, ", "))
	}
	var failed int64
	for _, f := range r.Failures {
		failed += f.Groups
	}
	var refused int64
	for _, r := range r.Refused {
		refused += r.Records
	}
	for _, p := range []struct {
		n         int64
		one, many string
	}{
		{failed, "record fails", "records fail"},
		{r.Collisions.Keys, "key collides", "keys collide"},
		{refused, "record breaks an index or a validator of the new version", "records break an index or a validator of the new version"},
		{r.Size.Over, "document is too large", "documents are too large"},
	} {
		switch {
		case p.n == 1:
			out = append(out, "1 "+p.one)
		case p.n > 1:
			out = append(out, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	return out
}
