package collections

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Carry says how a fixed-name kind of a newer version gets its options and indexes:
// from those of a kind of the version before it. Without a From it has its own.
type Carry struct {
	From string // a kind of the version before
	// Shape makes the options and indexes of those of From, or of none. An error keeps the
	// upgrade from being announced.
	Shape func(record.Shape) (record.Shape, error)
	// Back makes the options and indexes of From of which Shape makes the given ones. Of indexes that
	// are not made of From's it makes none. An error says what From cannot have. nil: nothing follows
	// back.
	Back func(record.Shape) (record.Shape, error)
}

// Carries are those of the newer one of two API versions that follow each other, by kind.
type Carries map[[2]string]map[string]Carry

// along returns how the kinds of a direction's target get their options and indexes, by
// kind: between places as they are, and over several versions through each of them. Going
// back there is nothing to carry, for the collections are there.
func (c Carries) along(dir transform.Direction) map[string]Carry {
	from, to := upgradestate.APIVersion(dir.From()), upgradestate.APIVersion(dir.To())
	if from == to {
		out := map[string]Carry{}
		for _, k := range dir.TargetKinds() {
			if k.Fixed {
				same := func(s record.Shape) (record.Shape, error) { return s, nil }
				out[k.Name] = Carry{From: k.Name, Shape: same, Back: same}
			}
		}
		return out
	}
	made := c.from(from)
	for at := from; ; {
		next := c.next(at)
		switch {
		case next == "":
			return nil
		case at != from:
			over := map[string]Carry{}
			for kind, carry := range c.from(at) {
				over[kind] = carry.after(made[carry.From])
			}
			made = over
		}
		if at = next; at == to {
			return made
		}
	}
}

// next is the version that follows one, or empty; each is followed by one at most.
func (c Carries) next(version string) string {
	for pair := range c {
		if pair[0] == version {
			return pair[1]
		}
	}
	return ""
}

func (c Carries) from(version string) map[string]Carry { return c[[2]string{version, c.next(version)}] }

// declared are the names of the indexes that a kind has whatever its source has.
func (c Carry) declared() ([]string, error) {
	own, err := c.Shape(record.Shape{})
	if err != nil {
		return nil, fmt.Errorf("what is declared: %w", err)
	}
	return names(own.Indexes), nil
}

// after carries what an earlier one has carried; what none has carried is bare.
func (c Carry) after(before Carry) Carry {
	if before.Shape == nil {
		return Carry{Shape: func(record.Shape) (record.Shape, error) { return c.Shape(record.Shape{}) }}
	}
	out := Carry{From: before.From, Shape: func(s record.Shape) (record.Shape, error) {
		between, err := before.Shape(s)
		if err != nil {
			return record.Shape{}, err
		}
		return c.Shape(between)
	}}
	if c.Back != nil && before.Back != nil {
		out.Back = func(s record.Shape) (record.Shape, error) {
			between, err := c.Back(s)
			if err != nil {
				return record.Shape{}, err
			}
			return before.Back(between)
		}
	}
	return out
}

// Carried returns the kinds of a direction's target, in its order. Fixed-name kinds that are
// not there yet have the options and indexes that their source gives them now.
func (m *Maintainer) Carried(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) ([]record.KindSpec, error) {
	kinds := slices.Clone(dir.TargetKinds())
	carries := m.Carry.along(dir)
	made, _ := d.Namespace(dir.To())
	for i, k := range kinds {
		carry, ok := carries[k.Name]
		if _, there := made.Kind(k.Name); there || !ok {
			// One that is there has its shape, and during a switch the source cannot be
			// described under a name that it is just losing.
			continue
		}
		var err error
		if kinds[i].Shape, err = m.carriedShape(ctx, d, carry); err != nil {
			return nil, fmt.Errorf("carry options and indexes to %s: %w", k.Name, err)
		}
	}
	return kinds, nil
}
