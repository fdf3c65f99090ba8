package moves

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// look takes the next step of each of these records, if it has one. It may ask one region, and leaves
// questions to others for their turns.
func (m *Mover) look(ctx context.Context, all []vrunner.Dirty, ask string) error {
	for some := range slices.Chunk(all, readMost) {
		var sels []record.Selector
		for _, d := range some {
			sels = append(sels, record.Selector{Kind: d.Kind, Key: record.StringKey(d.Name)})
			for _, other := range m.cfg.Others {
				sels = append(sels, record.Selector{Kind: region.CopiesKind(d.Kind), Key: record.StringKey(region.CopyKey(other, d.Name))})
			}
		}
		recs, err := m.cfg.Data.Select(ctx, sels, false)
		if err != nil {
			return err
		}
		found := map[vrunner.Dirty]*seen{}
		for _, d := range some {
			found[d] = &seen{Dirty: d, copies: map[string]record.Record{}}
		}
		for _, rec := range recs {
			key, _ := rec.Key.Name()
			if s := found[vrunner.Dirty{Kind: rec.Kind, Name: key}]; s != nil {
				s.own = &rec
				continue
			}
			from, name, _ := region.OfCopy(key)
			if s := found[vrunner.Dirty{Kind: strings.TrimSuffix(rec.Kind, region.CopiesKind("")), Name: name}]; s != nil {
				s.copies[from] = rec
			}
		}
		for _, s := range found {
			if err := m.step(ctx, s, ask); err != nil {
				return err
			}
		}
	}
	return nil
}

// seen is what a mover has read of a name.
type seen struct {
	vrunner.Dirty
	own    *record.Record
	copies map[string]record.Record
}

// step takes the next step of one record. It returns an error only if the mover cannot go on.
func (m *Mover) step(ctx context.Context, s *seen, ask string) error {
	k := m.cfg.Kinds[s.Kind]
	var own *region.Move
	if s.own != nil {
		move := k.MoveOf(s.own.Doc)
		own = &move
	}
	copies := map[string]region.Move{}
	for from, rec := range s.copies {
		copies[from] = k.MoveOf(rec.Doc)
	}
	d := Decide(m.cfg.Region, own, copies, rand.Text)
	move := region.Move{Step: region.Arriving, Region: d.Region, ID: copies[d.Region].ID}
	if own != nil && d.Do != Taken {
		move = *own
	}
	var waits string
	var ms []record.Mutation
	var err error
	switch d.Do {
	case Nothing:
	case Wait:
		waits = "waits for region " + d.Region
	case Taken:
		waits = "this region has a record of that name"
	case Hold:
		waits = fmt.Sprintf("region %s has no record of it: delete it, or set its region to %s", d.Region, m.cfg.Region)
	case Write:
		ms, err = m.write(k, s, d.Next)
	case Reserve:
		ms, waits, err = m.reserve(ctx, k, s, d)
	case Delete:
		ms = []record.Mutation{m.remove(s)}
	case Confirm:
		if d.Region == ask {
			ms, waits, err = m.confirm(ctx, k, s, d.Region, *own)
		} else {
			waits = m.queue(s.Dirty, d.Region)
		}
	}
	if err == nil && len(ms) > 0 {
		err = m.cfg.Data.Write(ctx, ms)
		m.log(s, d, err)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, record.ErrFenced):
		return err
	case errors.Is(err, record.ErrMismatch), errors.Is(err, record.ErrExists), errors.Is(err, record.ErrNotFound):
		waits = "looks again" // the record has changed since it was read
	case err != nil:
		waits = err.Error()
	}
	// After a write the change of the record comes by the subscription, and shows what is next.
	m.note(s.Dirty, move, waits)
	return nil
}

// write returns the write of the next state of the own record.
func (m *Mover) write(k Kind, s *seen, next region.Move) ([]record.Mutation, error) {
	doc, err := k.WithMove(s.own.Doc, next)
	return []record.Mutation{{Kind: s.Kind, Key: s.own.Key, Doc: doc, Match: record.MatchDoc(s.own.Doc)}}, err
}

func (m *Mover) remove(s *seen) record.Mutation {
	return record.Mutation{Kind: s.Kind, Key: s.own.Key, Match: record.MatchDoc(s.own.Doc)}
}

// reserve returns the write of a reservation, or the reason why there is none.
func (m *Mover) reserve(ctx context.Context, k Kind, s *seen, d Decision) (ms []record.Mutation, waits string, err error) {
	// An older version may lack fields of the record.
	form, _ := region.OfID(d.Next.ID)
	if slices.Index(m.cfg.Versions, m.cfg.Version) < slices.Index(m.cfg.Versions, form) {
		return nil, fmt.Sprintf("waits until this region is on %s: the record may have what %s has not", form, m.cfg.Version), nil
	}
	doc, err := region.WithID(s.copies[d.Region].Doc, s.Name)
	if err == nil {
		doc, err = k.WithMove(doc, d.Next)
	}
	if err != nil {
		return nil, "", err
	}
	rec := record.Record{Kind: s.Kind, Key: record.StringKey(s.Name), Doc: doc}
	if err := k.Accept(ctx, rec); err != nil {
		return nil, "this region refuses it: " + err.Error(), nil
	}
	return []record.Mutation{{Kind: s.Kind, Key: rec.Key, Doc: bson.Raw(doc), Absent: true}}, "", nil
}

// log logs the steps that change who owns a record.
func (m *Mover) log(s *seen, d Decision, err error) {
	fields := []any{slog.String("kind", s.Kind), slog.String("record", strings.ToValidUTF8(s.Name, "?")), slog.String("region", d.Region)}
	switch {
	case err != nil:
		return // shown by Report
	case d.Next.Step == region.Left:
		m.cfg.Log.Info("a record was given to another region", fields...)
	case d.Next.Step == region.Arrived:
		m.cfg.Log.Info("a record of another region is owned here now", fields...)
	}
}
