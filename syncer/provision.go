package syncer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Provision makes the collections for the kinds of a version and returns their description for the
// Deployment. It leaves out kinds that the Deployment already has. Kinds of a version that is not
// current get the Early part of their indexes. Their TTL indexes are recorded and delete nothing.
//
// The current version is in use by clients: its fixed-name kinds must exist under their own names.
// Fixed-name kinds of another version are built under a hidden name. fence returns the wanted fence
// class of a fixed-name kind; "" selects the strongest that the database allows.
func Provision(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version, location string, kinds []record.KindSpec, fence func(kind string) record.FenceClass) (upgradestate.Namespace, error) {
	out := upgradestate.Namespace{Version: version, Location: location}
	known, _ := d.Namespace(version)
	missing := slices.DeleteFunc(slices.Clone(kinds), func(spec record.KindSpec) bool {
		_, there := known.Kind(spec.Name)
		return there
	})
	// Workers write to their own elements, so no lock is needed.
	made := make([]upgradestate.Kind, len(missing))
	err := together(ctx, missing, func(ctx context.Context, i int, spec record.KindSpec) error {
		var err error
		if made[i], err = provisionKind(ctx, ns, spec, version == d.CurrentVersion, fence(spec.Name)); err != nil {
			return fmt.Errorf("provision %s/%s: %w", version, spec.Name, err)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out.Kinds = append(out.Kinds, made...)
	return out, nil
}

// together calls do for each kind, a few at a time. Hundreds of kinds in sequence would take
// minutes.
func together(ctx context.Context, kinds []record.KindSpec, do func(ctx context.Context, i int, spec record.KindSpec) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(splitters)
	for i, spec := range kinds {
		g.Go(func() error { return do(ctx, i, spec) })
	}
	return g.Wait()
}

// Inspect checks the kinds of a version before Provision makes any collection. It returns the error
// with which Provision would refuse a kind's name or an application's collection.
func Inspect(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version string, kinds []record.KindSpec) error {
	known, _ := d.Namespace(version)
	return together(ctx, kinds, func(ctx context.Context, _ int, spec record.KindSpec) error {
		if _, there := known.Kind(spec.Name); there {
			return nil
		}
		// Provision makes managed kinds itself, so only their names can be refused here.
		if err := nameFits(ctx, ns, spec); err != nil || !spec.Fixed {
			return err
		}
		if _, err := describeFixed(ctx, ns, spec, version == d.CurrentVersion); err != nil {
			return fmt.Errorf("inspect %s/%s: %w", version, spec.Name, err)
		}
		return nil
	})
}

// nameFits refuses a kind whose name is too long for the names that its collection gets during an
// upgrade.
func nameFits(ctx context.Context, ns record.Namespace, spec record.KindSpec) error {
	_, err := ns.Describe(ctx, spec, record.LongestName(spec.Name))
	var refused *record.UnsupportedError
	if errors.As(err, &refused) {
		return &record.UnsupportedError{What: "kind " + spec.Name,
			Reason: fmt.Sprintf("its collection gets longer names during an upgrade, up to %d bytes more, and %s: give it a shorter name", len(record.LongestName(spec.Name))-len(spec.Name), refused.Reason)}
	}
	return err
}

// describeFixed describes a fixed-name kind under its own name. In the current version the
// collection must exist. In another version it must not, since the switch needs its name.
func describeFixed(ctx context.Context, ns record.Namespace, spec record.KindSpec, current bool) (record.Info, error) {
	own, err := ns.Describe(ctx, spec, spec.Name)
	switch {
	case err != nil:
		return own, err
	case current && !own.Exists:
		return own, &record.UnsupportedError{What: "collection " + spec.Name,
			Reason: "it is not in the database of the current version: correct kinds, or the database or prefix in dbs of the configuration"}
	case !current && own.Exists:
		return own, &record.UnsupportedError{What: "collection " + spec.Name,
			Reason: "it exists in the database of the new version already, and its name is needed at the switch: rename it or use another database"}
	}
	return own, nil
}

// provisionKind makes or describes the collection of one kind and prepares its fence.
func provisionKind(ctx context.Context, ns record.Namespace, spec record.KindSpec, current bool, want record.FenceClass) (upgradestate.Kind, error) {
	var tok record.Token
	if spec.Fixed {
		own, err := describeFixed(ctx, ns, spec, current)
		if err != nil {
			return upgradestate.Kind{}, err
		}
		tok = own.Token
	}
	var expiry map[string]int64
	var carried []string
	if !current {
		// A target with running TTL indexes would delete records that sync has just written.
		spec.Shape, expiry = record.Unexpiring(spec.Shape)
		if err := tryIndexes(ctx, ns, spec); err != nil {
			return upgradestate.Kind{}, err
		}
		spec.Shape = Early(spec.Shape)
		if spec.Fixed { // recorded with the collection, since its source may drop them at any time
			for _, ix := range spec.Shape.Indexes {
				carried = append(carried, record.IndexName(ix))
			}
		}
	}
	// An earlier collection of the kind may have left fences in this database that count as ended.
	free, err := ns.FreeNumber(ctx, spec.Name)
	if err != nil {
		return upgradestate.Kind{}, err
	}
	if !spec.Fixed || !current { // an application's collection is described, never changed
		var err error
		if tok, err = ns.Provision(ctx, spec, record.PhysicalName(spec.Name, free)); err != nil {
			return upgradestate.Kind{}, err
		}
	}
	// Prepared now, so that a missing privilege shows before the copy and not at the switch.
	class, restore, err := ns.Prepare(ctx, tok, want)
	if err != nil {
		return upgradestate.Kind{}, err
	}
	return upgradestate.Kind{
		Kind: spec.Name, Fixed: spec.Fixed, Physical: tok.Name, ID: tok.ID, Fence: string(class), Restore: restore,
		NextSeq: free, Expiry: expiry, Carried: carried,
	}, nil
}

// TrialPrefix is the prefix of collections made to test index builds. If its maker is killed, an
// empty one stays until a sweep removes it.
const TrialPrefix = record.TrialKinds

// tryIndexes builds indexes in an empty collection and drops it. An index that the database refuses
// is thereby reported before the copy, not after it.
func tryIndexes(ctx context.Context, ns record.Namespace, spec record.KindSpec) error {
	if len(spec.Shape.Indexes) == len(Early(spec.Shape).Indexes) {
		return nil // the indexes are built at once
	}
	trial := record.KindSpec{Name: TrialPrefix + strings.ToLower(rand.Text()[:10])}
	tok, err := ns.Provision(ctx, trial, record.PhysicalName(trial.Name, 1))
	if err != nil {
		return fmt.Errorf("a collection to try indexes in: %w", err)
	}
	// The collection is made without indexes, so that BuildIndexes reports their errors.
	trial.Shape.Indexes = spec.Shape.Indexes
	built := ns.BuildIndexes(ctx, tok, trial)
	if built != nil {
		built = fmt.Errorf("try the indexes in an empty collection: %w", built)
	}
	// The drop must run even if ctx ends.
	return errors.Join(built, ns.Drop(context.WithoutCancel(ctx), tok))
}

// Early returns the part of a shape with which a target is made before the copy: its options and
// the indexes that refuse records. Records that violate those are parked one by one. The other
// indexes are cheaper to build after the copy.
func Early(s record.Shape) record.Shape {
	s.Indexes = slices.DeleteFunc(slices.Clone(s.Indexes), func(spec bson.Raw) bool { return !record.Refuses(spec) })
	return s
}
