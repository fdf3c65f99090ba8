package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// shapes checks the indexes and constraints of the future target.
func (p *plan) shapes(ctx context.Context) error {
	kinds, err := p.Collections.Carried(ctx, p.record, p.dir)
	if err != nil {
		return p.failed(ctx, "indexes", p.dir.To(), err)
	}
	if p.like, err = describeKinds(ctx, p.Space(p.dir.To()), p.record, p.dir.To(), kinds); err != nil {
		return p.failed(ctx, "indexes", p.dir.To(), err)
	}
	indexed, err := p.Collections.Indexed(ctx, p.record, p.dir)
	if err != nil {
		return p.failed(ctx, "indexes", p.dir.To(), err)
	}
	expiring := map[string]map[string]int64{}
	for i := range p.like {
		k := &p.like[i]
		expiring[k.kind] = record.ExpiryOf(k.spec.Shape)
		// The existing target may still lack indexes, and its TTL indexes are stopped.
		if at := slices.IndexFunc(indexed, func(x collections.Indexed) bool { return x.Spec.Name == k.kind }); at >= 0 {
			options := k.spec.Shape.Options
			// Take the future indexes, but keep the options of the existing collection.
			if k.spec.Shape = indexed[at].Spec.Shape; len(options) > 0 {
				k.spec.Shape.Options = options
			}
			expiring[k.kind] = indexed[at].Expiry
		}
		if transform.IsLineage(k.kind) {
			continue
		}
		p.indexes(*k)
		if len(expiring[k.kind]) > 0 {
			p.ok("ttl", k.kind, "TTL index %s deletes nothing in %s before the switch, nor in %s while a switch is near: documents that expire then are deleted later",
				strings.Join(slices.Sorted(maps.Keys(expiring[k.kind])), ", "), p.dir.To(), p.dir.From())
		}
	}
	return nil
}

// indexes reports the indexes of a kind and their effect on the copy.
func (p *plan) indexes(k scratchKind) {
	var all, unique, special []string
	for _, ix := range k.spec.Shape.Indexes {
		all = append(all, record.IndexName(ix))
		switch {
		// Unique and special indexes refuse records, which are then parked and block the switch.
		case record.IsUnique(ix):
			unique = append(unique, record.IndexName(ix))
		case record.Refuses(ix):
			special = append(special, record.IndexName(ix))
		}
	}
	text := "no indexes except _id"
	if len(all) > 0 {
		text = "indexes " + strings.Join(all, ", ")
	}
	if len(unique) > 0 {
		text += "; unique: " + strings.Join(unique, ", ") + ", so that records with equal values are parked"
	}
	if len(special) > 0 {
		text += "; special: " + strings.Join(special, ", ") + ", so that records with values that it rejects are parked: 'lens lint --indexes' finds them now"
	}
	if _, err := k.spec.Shape.Options.LookupErr("validator"); err == nil {
		text += "; a validator, so that records that it refuses are parked"
	}
	p.ok("indexes", k.kind, "%s", text)
}

// fences reports the fence class of each kind on both sides, and the reason why it is not stronger.
func (p *plan) fences(ctx context.Context) error {
	source, err := describeKinds(ctx, p.Space(p.dir.From()), p.record, p.dir.From(), p.dir.SourceKinds())
	if err != nil {
		return p.failed(ctx, "fence", p.dir.From(), err)
	}
	for _, side := range []struct {
		version string
		kinds   []scratchKind
	}{{p.dir.From(), source}, {p.dir.To(), p.like}} {
		if err := p.fencesOf(ctx, side.version, side.kinds); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) fencesOf(ctx context.Context, version string, kinds []scratchKind) error {
	ns := p.Space(version)
	return p.inScratch(ctx, "fence", ns, version, kinds, func(ctx context.Context, s *scratch) error {
		for i := range s.kinds {
			k := &s.kinds[i]
			if transform.IsLineage(k.kind) {
				continue
			}
			class, _, err := ns.Prepare(ctx, k.tok, k.class)
			if err != nil {
				if err := p.failed(ctx, "fence", version+"/"+k.kind, err); err != nil {
					return err
				}
				continue
			}
			guarantee := status.FenceGuarantee(string(class))
			// Only the validator class lets some late writes pass, so only that needs a reason.
			if class != record.FenceValidator {
				p.ok("fence", version+"/"+k.kind, "class %s: %s", class, guarantee)
				continue
			}
			stronger := record.FenceUUID
			if k.spec.Fixed {
				stronger = record.FenceView
			}
			why := fmt.Sprintf("class %s would be possible: configure it", stronger)
			// Ask again for the stronger class, because its error is the reason.
			if _, _, err := ns.Prepare(ctx, k.tok, stronger); err != nil {
				why = fmt.Sprintf("not class %s: %s", stronger, reason(err))
			}
			p.warn("fence", version+"/"+k.kind, "class %s: %s; %s", class, guarantee, why)
		}
		return nil
	})
}

// reason returns why something is not supported, without the server's own text.
func reason(err error) string {
	text := err.Error()
	var refused *record.UnsupportedError
	if errors.As(err, &refused) {
		text = refused.Reason
	}
	// The server's own text follows in parentheses.
	text, _, _ = strings.Cut(text, ": (")
	return text
}

// inScratch calls do with scratch collections like kinds, and then drops them. An error of do
// becomes a finding.
func (p *plan) inScratch(ctx context.Context, area string, ns Space, version string, kinds []scratchKind, do func(context.Context, *scratch) error) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streamTimeout)
		defer cancel()
		if err := ns.Sweep(ctx, planPrefix); err != nil {
			p.warn(area, version, "scratch collections remain; the next plan removes them: %v", err)
		}
	}()
	// Sweep first: a dead process may have left collections that fill the database.
	err := ns.Sweep(ctx, planPrefix)
	var s *scratch
	if err == nil {
		s, err = makeScratch(ctx, ns, newPrefix(planPrefix), kinds)
	}
	if err == nil {
		err = do(ctx, s)
	}
	if err != nil {
		return p.failed(ctx, area, version, err)
	}
	return nil
}
