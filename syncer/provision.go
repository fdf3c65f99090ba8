package syncer

import (
	"context"
	"fmt"

	"dbcontroller/record"
	"dbcontroller/upgradestate"
)

// Provision makes the collections of a version's kinds and describes them for the
// record. Kinds that the record has already are completed where they are (their indexes)
// and not described again. current says that clients use this version now: its
// fixed-name kinds must be there under their own name, while those of another version are
// built under a hidden one. fence names the class wanted for a fixed-name kind, empty
// for the strongest that the database allows.
func Provision(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version, location string, kinds []record.KindSpec, fence func(kind string) record.FenceClass) (upgradestate.Namespace, error) {
	out := upgradestate.Namespace{Version: version, Location: location}
	known, _ := d.Namespace(version)
	for _, spec := range kinds {
		if _, there := known.Kind(spec.Name); there {
			continue
		}
		k, err := provisionKind(ctx, ns, spec, version == d.CurrentVersion, fence(spec.Name))
		if err != nil {
			return out, fmt.Errorf("provision %s/%s: %w", version, spec.Name, err)
		}
		out.Kinds = append(out.Kinds, k)
	}
	return out, nil
}

// Inspect refuses, before anything is made, what Provision would refuse of an
// application's collections.
func Inspect(ctx context.Context, ns record.Namespace, d upgradestate.Deployment, version string, kinds []record.KindSpec) error {
	known, _ := d.Namespace(version)
	for _, spec := range kinds {
		if _, there := known.Kind(spec.Name); there || !spec.Fixed {
			continue
		}
		if _, err := describeFixed(ctx, ns, spec, version == d.CurrentVersion); err != nil {
			return fmt.Errorf("inspect %s/%s: %w", version, spec.Name, err)
		}
	}
	return nil
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
			Reason: "it is not in the database of the current version: correct kinds or mongo.database in the configuration"}
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
	}, nil
}
