package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// trip sends records of the source to the new side and back three times: into empty collections, as
// if clients had created them; over the existing records, as if clients had changed them; and, for
// half of the groups, as if clients had deleted them. No group may be refused. Unchanged records
// must return as they were. A deleted group must disappear, and no other record with it.
func (p *proof) trip(ctx context.Context, source *frozen, toks record.Tokens) error {
	e := p.record.Epoch
	over, ids := leg{dir: p.up, from: source, src: transform.View{Tokens: toks}, to: p.new, epoch: e, workers: tripWorkers}, groupsOf(source.records, p.up.GroupOf)
	failed, err := over.apply(ctx, ids)
	if err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.up.To(), err)
	}
	// Nothing writes to the new side before the deletes below. So it is read once for both ways back,
	// next to the comparison: it may be far away.
	held := &frozen{}
	g, reading := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := over.compare(reading, ids, failed); err != nil {
			return fmt.Errorf("to scratch collections of %s: %w", p.up.To(), err)
		}
		return nil
	})
	g.Go(func() (err error) {
		if held.records, err = p.new.all(reading, p.down.SourceKinds()); err != nil {
			return err
		}
		held.version, err = p.new.fresh(reading, record.Version{})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	there := held.records
	// The copy parks these groups, so they do not count against the rollback.
	p.skipped = len(failed)
	originals := slices.DeleteFunc(slices.Clone(source.records), func(r record.Record) bool {
		id, ok, err := p.up.GroupOf(r.Kind, r.Key)
		return !ok || err != nil || failed[id] != nil
	})
	ids = groupsOf(there, p.down.GroupOf)
	// Each pass has a higher epoch. Otherwise the guards of the previous pass would refuse its
	// writes.
	back := leg{dir: p.down, from: held, src: transform.View{Tokens: p.new.toks}, to: p.old, epoch: e + 1, workers: tripWorkers}
	if err := p.back(ctx, back, ids); err != nil {
		return err
	}
	if err := p.restore(ctx, originals, e+2); err != nil {
		return err
	}
	back.epoch = e + 3
	if err := p.back(ctx, back, ids); err != nil {
		return err
	}
	if err := p.compare(ctx, originals); err != nil {
		return err
	}
	return p.delete(ctx, back, there, ids)
}

// back sends groups to the old side. No group may fail.
func (p *proof) back(ctx context.Context, l leg, ids []transform.GroupID) error {
	failed, err := l.apply(ctx, ids)
	if err == nil {
		err = l.compare(ctx, ids, failed)
	}
	if err != nil {
		return fmt.Errorf("to scratch collections of %s: %w", p.down.To(), err)
	}
	return p.refused(failed)
}

// compare compares the returned records with the originals. Only records with a transformer that is
// declared one-way may differ; they are counted.
func (p *proof) compare(ctx context.Context, originals []record.Record) error {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return err
	}
	kinds := map[string]bool{}
	for _, r := range originals {
		kinds[r.Kind] = true
	}
	p.records, p.kinds = len(originals), len(kinds)
	oneWay := func(r record.Record) bool {
		id, _, err := p.up.GroupOf(r.Kind, r.Key)
		return err == nil && transform.ReversalOf(p.up, id) == transform.ReversalNone
	}
	// Compare the two classes apart: only one of them has to return unchanged.
	both := func(r record.Record) bool { return !oneWay(r) }
	p.altered = len(differences(without(originals, both), without(got, both)))
	if differ := differences(without(originals, oneWay), without(got, oneWay)); len(differ) > 0 {
		return fmt.Errorf("unchanged records of %s differ after they are migrated there and back: %s: correct the transformer", p.down.To(), some(differ))
	}
	return nil
}

func without(rs []record.Record, which func(record.Record) bool) []record.Record {
	return slices.DeleteFunc(slices.Clone(rs), which)
}

// restore writes the originals over the returned records, and deletes all others.
func (p *proof) restore(ctx context.Context, originals []record.Record, epoch uint64) error {
	got, err := p.old.all(ctx, p.up.SourceKinds())
	if err != nil {
		return err
	}
	batch := record.Batch{Epoch: epoch}
	add := func(r record.Record, doc []byte) {
		batch.Groups = append(batch.Groups, record.GroupWrite{
			Group: r.Key.String(), Writes: []record.Write{{Kind: r.Kind, Key: r.Key, Doc: doc}},
		})
	}
	stays := map[at]bool{}
	for _, o := range originals {
		stays[at{o.Kind, o.Key}] = true
	}
	for _, r := range got {
		// A record without an original came from the transform; it must not be there in the next
		// pass.
		if !stays[at{r.Kind, r.Key}] {
			add(r, nil)
		}
	}
	for _, r := range originals {
		add(r, r.Doc)
	}
	results, err := p.old.apply(ctx, batch)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Outcome == record.Refused {
			return fmt.Errorf("%s %s could not be written again unchanged: %w: correct the record, or the index or validator that refuses it",
				batch.Groups[i].Writes[0].Kind, batch.Groups[i].Group, r.Err)
		}
	}
	return nil
}

// refused returns an error that names the groups that cannot return.
func (p *proof) refused(failed map[transform.GroupID]error) error {
	if len(failed) == 0 {
		return nil
	}
	var texts []string
	for id, err := range failed {
		kind, key := p.down.Anchor(id)
		// Operators know the real collections, not the scratch ones.
		text := p.old.told(err)
		if !transform.IsLineage(kind) {
			text = fmt.Sprintf("%s %s: %s", kind, key, text)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return fmt.Errorf("%d of the sampled groups could not be migrated back from %s to %s: %s: correct the transformer, or the index or validator of %s that refuses them",
		len(failed), p.up.To(), p.down.To(), some(texts), p.down.To())
}

// some lists the first three texts.
func some(texts []string) string {
	const most = 3
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + "; ..."
	}
	return strings.Join(texts, "; ")
}

// delete deletes every second group on the new side, as clients do, and sends the deletes back.
func (p *proof) delete(ctx context.Context, l leg, there []record.Record, ids []transform.GroupID) error {
	thereOf := map[string][]record.Record{} // by kind
	for _, rec := range there {
		thereOf[rec.Kind] = append(thereOf[rec.Kind], rec)
	}
	var mu sync.Mutex
	var gone []transform.GroupID
	batch := record.Batch{Epoch: l.epoch}
	err := l.each(ctx, ids, func(ctx context.Context, ids []transform.GroupID) error {
		r := transform.Resolver{Direction: l.dir, Source: l.from, Target: l.to, From: l.src, To: l.dst(), Epoch: l.epoch}
		cs, _, err := r.Resolve(ctx, ids)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		// Every second one, so that the others show that a delete takes nothing else along.
		for i := 0; i < len(cs); i += 2 {
			members := cs[i].Members()
			gone = append(gone, members...)
			for _, id := range members {
				for _, s := range p.down.SourceSelect(id) {
					for _, rec := range thereOf[s.Kind] {
						if selects(s, rec) {
							batch.Groups = append(batch.Groups, record.GroupWrite{Group: rec.Key.String(), Writes: []record.Write{{Kind: rec.Kind, Key: rec.Key}}})
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete in scratch collections of %s: %w", p.up.To(), err)
	}
	if len(batch.Groups) == 0 {
		return nil
	}
	if _, err := p.new.apply(ctx, batch); err != nil {
		return fmt.Errorf("delete in scratch collections of %s: %w", p.up.To(), err)
	}
	// From here on the new side itself is read. Its reads include the deletes (scratch.fresh).
	l.from = p.new
	if err := p.back(ctx, l, gone); err != nil {
		return fmt.Errorf("deleted in %s: %w", p.up.To(), err)
	}
	failed := map[transform.GroupID]error{}
	// Compare all groups: a delete must not change any other one.
	if err := l.compare(ctx, ids, failed); err != nil {
		return err
	}
	if err := p.refused(failed); err != nil {
		return fmt.Errorf("when others are deleted in %s: %w", p.up.To(), err)
	}
	return nil
}
