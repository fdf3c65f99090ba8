package rehearsal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// fill creates all kinds of the source in a scratch database, including discontinued ones. It
// copies the first records of each kind that the upgrade copies. Groups of several records may be
// incomplete; the scratch upgrade parks those that it cannot transform for that reason.
func (r *rehearsal) fill(ctx context.Context, sample int) error {
	dir, err := r.Registry.Direction(r.from, r.to)
	if err != nil {
		return err
	}
	out, done, err := r.Backend.Scratch(ctx, r.from)
	if err != nil {
		return err
	}
	defer done(context.WithoutCancel(ctx))
	source := r.Backend.Real(r.from)
	at := syncer.Tokens(r.real, r.from)
	for _, k := range dir.SourceKinds() {
		// Use the present indexes and options, so that the sample meets the same constraints.
		info, err := source.Describe(ctx, k, at[k.Name].Name)
		if err != nil {
			return err
		}
		name := record.PhysicalName(k.Name, 1)
		if k.Fixed {
			name = k.Name
		}
		tok, err := out.Provision(ctx, record.KindSpec{Name: k.Name, Fixed: k.Fixed, Shape: info.Shape}, name)
		if err != nil {
			return fmt.Errorf("kind %s: %w", k.Name, err)
		}
		if !transform.SyncsFrom(dir, k.Name) {
			continue // takes part in the switch with its collection only
		}
		err = record.ScanPages(ctx, source, at[k.Name], sample, func(page record.Page) error {
			// Epoch 1 is the first epoch of a new deployment.
			batch := record.Batch{Tokens: record.Tokens{k.Name: tok}, Epoch: 1}
			for _, rec := range page.Records {
				if rec.Err != nil {
					r.problem("record %s of %s would be parked and is left out: %v", rec.Key, k.Name, rec.Err)
					continue
				}
				batch.Groups = append(batch.Groups, record.GroupWrite{
					Group: rec.Key.String(), Version: page.Version, Writes: []record.Write{{Kind: k.Name, Key: rec.Key, Doc: rec.Doc}},
				})
			}
			results, err := out.Load(ctx, batch)
			for i, res := range results {
				// A refused record is a finding: it would not survive the switch back either.
				if err == nil && res.Outcome != record.Applied {
					r.problem("record %s of %s cannot be stored again unchanged: %v", batch.Groups[i].Group, k.Name, res.Err)
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("kind %s: %w", k.Name, err)
		}
	}
	return nil
}

// contents returns digests of a version's records. It omits groups by content, because a record's
// key does not show its group; the comparison covers them. It also omits records of transformers
// that are declared one-way.
func (r *rehearsal) contents(ctx context.Context, s *stage, version string) (map[member]digest, error) {
	d, err := s.deployment.Get(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := r.Registry.Direction(r.from, r.to)
	if err != nil {
		return nil, err
	}
	out := map[member]digest{}
	for kind, tok := range syncer.Tokens(d, version) {
		err := record.ScanPages(ctx, s.Database(version), tok, 0, func(page record.Page) error {
			for _, rec := range page.Records {
				id, ok, err := dir.GroupOf(kind, rec.Key)
				if err == nil && ok && dir.LineageKind(id.Spec) == "" && transform.ReversalOf(dir, id) != transform.ReversalNone {
					// The group is part of the key, because a rewritten group is compared
					// differently.
					out[member{id, kind, rec.Key}] = sha256.Sum256(rec.Doc)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// digest stands for a document, because a whole sample of documents may not fit in memory.
type digest [sha256.Size]byte

// rewriteShare is the reciprocal share of rewritten groups: one in ten.
const rewriteShare = 10

// rewrite deletes some groups of managed kinds in the current version and creates them again, as
// clients do. The rollback then has changes to apply. It returns these groups: the delete loses
// their fields that only the old version can hold.
func (r *rehearsal) rewrite(ctx context.Context, s *stage) (map[transform.GroupID]bool, error) {
	d, err := s.deployment.Get(ctx)
	if err != nil {
		return nil, err
	}
	back, err := r.Registry.Direction(r.to, r.from)
	if err != nil {
		return nil, err
	}
	_, places := upgradestate.WritePlaces(d)
	ns := s.Database(d.CurrentVersion)
	clients, ok := ns.(Clients)
	if !ok {
		return nil, fmt.Errorf("the database of %s has no clients", d.CurrentVersion)
	}
	toks := record.Tokens{}
	seen := map[transform.GroupID]bool{}
	for _, p := range places {
		toks[p.Kind] = syncer.TokenAt(p)
	}
	for _, p := range places {
		// Clients of fixed-name kinds write without the store, so the store's client cannot stand
		// for them.
		if p.Fixed || transform.IsLineage(p.Kind) {
			continue
		}
		err := record.ScanPages(ctx, ns, toks[p.Kind], 0, func(page record.Page) error {
			for _, rec := range page.Records {
				if id, ok, err := back.GroupOf(p.Kind, rec.Key); err == nil && ok && back.LineageKind(id.Spec) == "" {
					seen[id] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	rewritten := map[transform.GroupID]bool{}
	n := 0
	for id := range seen {
		if n++; n%rewriteShare != 0 {
			continue
		}
		snap, err := ns.Read(ctx, record.ReadRequest{Tokens: toks, Select: back.SourceSelect(id), Bytes: transform.GroupBytes})
		// A group that is too large for one read is not rewritten.
		if errors.Is(err, record.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rewritten[id] = true
		var gone, again []record.Mutation
		for _, rec := range snap.Records {
			gone = append(gone, record.Mutation{Kind: rec.Kind, Key: rec.Key})
			again = append(again, record.Mutation{Kind: rec.Kind, Key: rec.Key, Doc: rec.Doc, Absent: true})
		}
		// Two writes, because the delete must reach the old version as a delete.
		for _, ms := range [][]record.Mutation{gone, again} {
			if err := clients.Client().Write(ctx, toks, ms); err != nil {
				return nil, err
			}
		}
	}
	return rewritten, nil
}
