package collections

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// withIndexed adds the indexes of declared fields to a kind, if its database builds them.
func (m *Maintainer) withIndexed(ctx context.Context, version string, spec record.KindSpec, at upgradestate.Kind) (record.KindSpec, error) {
	if len(spec.Indexed) == 0 || spec.Fixed {
		return spec, nil
	}
	info, err := m.Database(version).Describe(ctx, spec, at.Physical)
	if err != nil || !info.Indexes {
		return spec, err
	}
	return record.WithIndexed(spec), nil
}

// keepActive builds missing indexes of declared fields in the active version. Its collections have
// records already. Until an index is complete, handlers read without it. During an upgrade it
// builds none, because a switch would have to wait for the build.
func (m *Maintainer) keepActive(ctx context.Context, d upgradestate.Deployment) {
	if err := m.buildActive(ctx, d); err != nil && ctx.Err() == nil && !m.moved(ctx, d, err) {
		// The check repeats every few seconds: log each problem once.
		if text := err.Error(); text != m.unbuilt.Swap(text) {
			m.Log.Warn("cannot build an index of the active version: handlers read without it", zap.String("version", d.CurrentVersion), zap.Error(err))
		}
		return
	}
	m.unbuilt.Swap("")
}

func (m *Maintainer) buildActive(ctx context.Context, d upgradestate.Deployment) error {
	// A build that is still running would delay the fence of a switch.
	if d.Upgrade != nil || m.Database(d.CurrentVersion) == nil {
		return nil
	}
	ns, _ := d.Namespace(d.CurrentVersion)
	var errs []error
	for _, spec := range m.Registry.Kinds(upgradestate.APIVersion(d.CurrentVersion)) {
		at, known := ns.Kind(spec.Name)
		if !known || at.Pending != nil || len(spec.Indexed) == 0 || spec.Fixed {
			continue
		}
		if err := m.buildDeclared(ctx, d.CurrentVersion, spec, at); err != nil {
			errs = append(errs, fmt.Errorf("kind %s: %w", spec.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Maintainer) buildDeclared(ctx context.Context, version string, spec record.KindSpec, at upgradestate.Kind) error {
	tok := syncer.TokenOf(at)
	info, err := m.Database(version).Describe(ctx, spec, tok.Name)
	// The collection may have moved or may be recreated at this moment. The next check sees it.
	if err != nil || !info.Exists || info.Token.ID != tok.ID || !info.Indexes {
		return err
	}
	there := names(info.Shape.Indexes)
	// The other indexes of the kind are not this function's business.
	wanted := spec
	wanted.Shape = record.Shape{}
	wanted = record.WithIndexed(wanted)
	wanted.Shape.Indexes = slices.DeleteFunc(wanted.Shape.Indexes, func(ix bson.Raw) bool { return slices.Contains(there, record.IndexName(ix)) })
	if len(wanted.Shape.Indexes) == 0 {
		return nil
	}
	m.Log.Info("indexes of declared fields are built", zap.String("kind", spec.Name), zap.String("version", version), zap.Strings("indexes", names(wanted.Shape.Indexes)))
	return m.Database(version).BuildIndexes(ctx, tok, wanted)
}
