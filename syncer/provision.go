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

// Provision makes the collections of a version's kinds and describes them for the
// record. Kinds that the record has already are left alone. The kinds of a version that is
// not current get the Early part of their indexes; TTL indexes among the declared ones are
// noted and delete nothing. current means that clients use this version now: its
// fixed-name kinds must be there under their own name, while those of another version are
// built under a hidden one. fence names the class wanted for a fixed-name kind, empty
// for the strongest that the database allows.
func Provision(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version, location string, kinds []record.KindSpec, fence func(kind string) record.FenceClass) (upgradestate.Namespace, error) {
	out := upgradestate.Namespace{Version: version, Location: location}
	known, _ := d.Namespace(version)
	missing := slices.DeleteFunc(slices.Clone(kinds), func(spec record.KindSpec) bool {
		_, there := known.Kind(spec.Name)
		return there
	})
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

// together does something for each kind, for a few of them at a time: one after the other
// hundreds of kinds would take minutes.
func together(ctx context.Context, kinds []record.KindSpec, do func(ctx context.Context, i int, spec record.KindSpec) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(splitters)
	for i, spec := range kinds {
		g.Go(func() error { return do(ctx, i, spec) })
	}
	return g.Wait()
}

// Inspect refuses, before anything is made, what Provision would refuse of an
// application's collections.
func Inspect(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version string, kinds []record.KindSpec) error {
	known, _ := d.Namespace(version)
	return together(ctx, kinds, func(ctx context.Context, _ int, spec record.KindSpec) error {
		if _, there := known.Kind(spec.Name); there {
			return nil
		}
		if err := nameFits(ctx, ns, spec); err != nil || !spec.Fixed {
			return err
		}
		if _, err := describeFixed(ctx, ns, spec, version == d.CurrentVersion); err != nil {
			return fmt.Errorf("inspect %s/%s: %w", version, spec.Name, err)
		}
		return nil
	})
}

// nameFits refuses a kind whose collection could not have the names that it is given on its way.
func nameFits(ctx context.Context, ns record.Namespace, spec record.KindSpec) error {
	_, err := ns.Describe(ctx, spec, record.LongestName(spec.Name))
	var refused *record.UnsupportedError
	if errors.As(err, &refused) {
		return &record.UnsupportedError{What: "kind " + spec.Name,
			Reason: fmt.Sprintf("its collection gets longer names during an upgrade, up to %d bytes more, and %s: give it a shorter name", len(record.LongestName(spec.Name))-len(spec.Name), refused.Reason)}
	}
	return err
}

// describeFixed describes a fixed-name kind under its own name: the application's
// collection in the current version, which must be there, and in another version
// nothing.
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
	if !current {
		spec.Shape, expiry = record.Unexpiring(spec.Shape)
		if err := tryIndexes(ctx, ns, spec); err != nil {
			return upgradestate.Kind{}, err
		}
		spec.Shape = Early(spec.Shape)
	}
	if !spec.Fixed || !current { // an application's collection is described, never changed
		var err error
		if tok, err = ns.Provision(ctx, spec, record.PhysicalName(spec.Name, 1)); err != nil {
			return upgradestate.Kind{}, err
		}
	}
	class, restore, err := ns.Prepare(ctx, tok, want)
	if err != nil {
		return upgradestate.Kind{}, err
	}
	return upgradestate.Kind{
		Kind: spec.Name, Fixed: spec.Fixed, Physical: tok.Name, ID: tok.ID, Fence: string(class), Restore: restore,
		Expiry: expiry,
	}, nil
}

// TrialPrefix begins the names of the collections that indexes are tried in. One whose maker
// was killed holds nothing, and stays until somebody sweeps it.
const TrialPrefix = record.TrialKinds

// tryIndexes has the database refuse what it cannot build now, and not when everything is
// copied: it builds the indexes in an empty collection, which goes again.
func tryIndexes(ctx context.Context, ns record.Namespace, spec record.KindSpec) error {
	if len(spec.Shape.Indexes) == len(Early(spec.Shape).Indexes) {
		return nil // they are built at once
	}
	trial := record.KindSpec{Name: TrialPrefix + strings.ToLower(rand.Text()[:10])}
	tok, err := ns.Provision(ctx, trial, record.PhysicalName(trial.Name, 1))
	if err != nil {
		return fmt.Errorf("a collection to try indexes in: %w", err)
	}
	trial.Shape.Indexes = spec.Shape.Indexes
	built := ns.BuildIndexes(ctx, tok, trial)
	if built != nil {
		built = fmt.Errorf("try the indexes in an empty collection: %w", built)
	}
	return errors.Join(built, ns.Drop(context.WithoutCancel(ctx), tok))
}

// Early is the part of a shape that a target is made with before anything is copied: its
// options, and the indexes that refuse records, so that what breaks them is parked one by
// one. The others are cheaper to build once everything is there.
func Early(s record.Shape) record.Shape {
	s.Indexes = slices.DeleteFunc(slices.Clone(s.Indexes), func(spec bson.Raw) bool { return !record.Refuses(spec) })
	return s
}
