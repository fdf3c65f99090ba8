package collections

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Carry derives the options and indexes of a fixed-name kind of a newer version from a kind of the
// version before it. Without From, the kind has its own.
type Carry struct {
	From string // a kind of the previous version
	// Shape derives the shape from the shape of From, or from the empty shape. An error prevents
	// the announcement of the upgrade.
	Shape func(record.Shape) (record.Shape, error)
	// Back returns the shape of From from which Shape derives the given one. It returns nothing for
	// indexes that do not derive from From. An error names the part that From cannot have. If
	// Back is nil, nothing follows back.
	Back func(record.Shape) (record.Shape, error)
}

// Carries holds, for two consecutive API versions, the Carry of each kind of the newer one.
type Carries map[[2]string]map[string]Carry

// along returns the Carry of each target kind of a direction. Between locations of one version,
// shapes stay as they are. Over several versions, along combines the carries of each step. In a
// rollback it returns none, because the collections exist already.
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
		// to is older than from: a rollback.
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

// next returns the version that follows another, or "". Each version has at most one successor.
func (c Carries) next(version string) string {
	for pair := range c {
		if pair[0] == version {
			return pair[1]
		}
	}
	return ""
}

func (c Carries) from(version string) map[string]Carry { return c[[2]string{version, c.next(version)}] }

// declared returns the names of the indexes that a kind has independent of its source.
func (c Carry) declared() ([]string, error) {
	own, err := c.Shape(record.Shape{})
	if err != nil {
		return nil, fmt.Errorf("declared indexes and options: %w", err)
	}
	return names(own.Indexes), nil
}

// after combines two carries: before first, then c. Without a Shape in before, the source is empty.
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

// Carried returns the target kinds of a direction, in their order. Fixed-name kinds that do not
// exist yet have the options and indexes that their source requires now.
func (m *Maintainer) Carried(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) ([]record.KindSpec, error) {
	kinds := slices.Clone(dir.TargetKinds())
	carries := m.Carry.along(dir)
	made, _ := d.Namespace(dir.To())
	for i, k := range kinds {
		carry, ok := carries[k.Name]
		if _, there := made.Kind(k.Name); there || !ok {
			// An existing kind has its shape. Also, during a switch the source cannot be described
			// under the name that it is losing.
			continue
		}
		var err error
		if kinds[i].Shape, err = m.carriedShape(ctx, d, carry); err != nil {
			return nil, fmt.Errorf("carry options and indexes to %s: %w", k.Name, err)
		}
	}
	return kinds, nil
}
