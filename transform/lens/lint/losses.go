package lint

import (
	"errors"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
)

// Losses returns the fields that subjects are known to lose, without any sample.
func Losses(subjects []Subject) []Loss {
	out := []Loss{}
	for _, s := range subjects {
		for _, way := range []struct {
			direction, main string
			losses          []lens.Loss
		}{{"up", s.Spec.Old.Kinds[0].Name, s.LostUp}, {"down", s.Spec.New.Kinds[0].Name, s.LostDown}} {
			for _, l := range way.losses {
				kind := l.Kind
				if kind == "" {
					kind = way.main
				}
				out = append(out, Loss{Direction: way.direction, Kind: kind, Field: l.Field, Operation: l.Operation})
			}
		}
	}
	return out
}

// declared returns the losses of the i-th subject, with their indexes in the report.
func (c *checker) declared(i int, s Subject) tried {
	t := tried{old: s.Spec.Old.Kinds[0].Name, now: s.Spec.New.Kinds[0].Name}
	// The report lists the losses of all subjects, up before down.
	at := 0
	for _, before := range c.specs[:i] {
		at += len(before.lostUp) + len(before.lostDown)
	}
	for _, l := range s.LostUp {
		t.lostUp = append(t.lostUp, declared{l.Kind, splitPath(l.Field), at, l.Emptiness})
		at++
	}
	for _, l := range s.LostDown {
		t.lostDown = append(t.lostDown, declared{l.Kind, splitPath(l.Field), at, l.Emptiness})
		at++
	}
	return t
}

// declared is a loss that a lens declares.
type declared struct {
	kind  string
	path  []string
	index int // in Report.Losses
	// emptiness means that only the difference between an empty and an absent list or map is lost.
	emptiness bool
}

// covers reports whether this loss explains a difference: a value that one side lacks or has in
// another form.
func (l declared) covers(d Difference, main string) bool {
	if l.kind != d.Kind && (l.kind != "" || d.Kind != main) {
		return false
	}
	n := min(len(l.path), len(d.Path))
	for i := range n {
		if l.path[i] != "*" && l.path[i] != d.Path[i] {
			return false
		}
	}
	if l.emptiness {
		return len(d.Path) == len(l.path) && (d.Was.Type == 0 && isEmpty(d.Is) || d.Is.Type == 0 && isEmpty(d.Was))
	}
	// If the lost field was the only one, its whole object is absent.
	return len(d.Path) >= len(l.path) || len(d.Path) > 0 && (d.Was.Type == 0 || d.Is.Type == 0)
}

// isEmpty reports whether a value is a list or map without entries.
func isEmpty(v bson.RawValue) bool {
	return (v.Type == bson.TypeArray || v.Type == bson.TypeEmbeddedDocument) && len(v.Value) == 5
}

func splitPath(dotted string) []string { return strings.Split(dotted, ".") }

// lost counts the fields that a group lost in a direction. A loss that no operation declares breaks
// the law.
func (c *checker) lost(direction, main string, known []declared, was, is []record.Record, name string) error {
	if exact(was, is) {
		return nil
	}
	var broken error
	seen := map[int]bool{}
	for _, d := range differences(was, is) {
		at := slices.IndexFunc(known, func(l declared) bool { return l.covers(d, main) })
		var i int
		if at >= 0 {
			i = known[at].index
		} else {
			i = c.undeclared(direction, d, was)
			if broken == nil {
				broken = errors.New(d.String())
			}
		}
		// Count each loss once for each group.
		if seen[i] {
			continue
		}
		seen[i] = true
		l := &c.report.Losses[i]
		l.Records++
		if len(l.Names) < c.Examples {
			l.Names = append(l.Names, name)
		}
	}
	return broken
}

// undeclared returns the index in the report of a loss that no lens declares.
func (c *checker) undeclared(direction string, d Difference, was []record.Record) int {
	// A record that is missing as a whole has no field.
	field := "(record)"
	for _, r := range was {
		if r.Kind == d.Kind && r.Key == d.Key && len(d.Path) > 0 {
			field = pattern(d.Path, r.Doc)
		}
	}
	// The same loss of an earlier group counts together with this one.
	same := func(l Loss) bool {
		return l.Direction == direction && l.Kind == d.Kind && l.Field == field && l.Operation == ""
	}
	if i := slices.IndexFunc(c.report.Losses, same); i >= 0 {
		return i
	}
	c.report.Losses = append(c.report.Losses, Loss{Direction: direction, Kind: d.Kind, Field: field})
	return len(c.report.Losses) - 1
}
