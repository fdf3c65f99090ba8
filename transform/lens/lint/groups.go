package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Sample provides the records of one kind of a version.
type Sample struct {
	Kind   string
	Source Source
}

// defaultMemory limits the memory for remembered records and keys, in bytes.
const defaultMemory = 256 << 20

// sampled iterates over a sample group by group.
type sampled struct {
	from   transform.Direction // the direction away from the sample's version
	limit  int                 // records of each main kind; 0: all
	memory int
	mains  []string // the main kind of each spec
	read   []Read
	// bad is called with each record that has no group.
	bad func(r record.Record, err error)
	// If the limit cuts a main kind, sampled reads only those records of its other kinds that
	// belong to wanted groups. Others would look like records without a parent.
	cut    map[int]bool // by spec
	wanted map[transform.GroupID]bool
}

// each calls f for every group, with its records in a transformer's order. It passes a group of one
// record on at once, without keeping it.
func (s *sampled) each(ctx context.Context, samples []Sample, f func(id transform.GroupID, rs []record.Record) error) (err error) {
	// kept collects records until all members of their groups were read.
	kept := spill{limit: s.memory}
	s.cut, s.wanted = map[int]bool{}, map[transform.GroupID]bool{}
	samples = slices.Clone(samples)
	// Main kinds come first, because they decide which groups are wanted.
	slices.SortStableFunc(samples, func(a, b Sample) int {
		return cmp.Compare(s.place(a.Kind), s.place(b.Kind))
	})
	defer func() { err = errors.Join(err, kept.close()) }()
	for _, sample := range samples {
		if err := s.readKind(ctx, sample, &kept, f); err != nil {
			return err
		}
	}
	groups := map[transform.GroupID][]record.Record{}
	return kept.each(func(key string, e [][]byte) error {
		id := transform.GroupID{Spec: int(e[0][0]), Name: key}
		groups[id] = append(groups[id], record.Record{Kind: string(e[1]), Key: record.Key(e[2]), Doc: bson.Raw(e[3])})
		return nil
	}, func() error {
		for _, id := range sortedIDs(groups) {
			rs := groups[id]
			// Entries come back in the order of reading, not in a transformer's order.
			transform.SortRecords(rs)
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(id, rs); err != nil {
				return err
			}
		}
		// Free the groups of this part before the next one is read.
		clear(groups)
		return nil
	})
}

// place returns the sort position of a kind: main kinds come first.
func (s *sampled) place(kind string) int {
	if slices.Contains(s.mains, kind) {
		return 0
	}
	return 1
}

func (s *sampled) readKind(ctx context.Context, sample Sample, kept *spill, f func(transform.GroupID, []record.Record) error) error {
	s.read = append(s.read, Read{Kind: sample.Kind})
	read := &s.read[len(s.read)-1]
	spec := slices.Index(s.mains, sample.Kind)
	for {
		if spec >= 0 && s.limit > 0 && read.Records >= int64(s.limit) {
			s.cut[spec] = true
			return nil
		}
		doc, err := sample.Source.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		read.Records++
		key, err := record.KeyOfDoc(doc)
		if err != nil {
			return fmt.Errorf("record %d of %s has no _id: a sample has the documents as they are stored", read.Records, sample.Kind)
		}
		r := record.Record{Kind: sample.Kind, Key: key, Doc: doc}
		id, ok, err := groupOf(s.from, r)
		switch {
		case !ok:
			return fmt.Errorf("no lens has the kind %s", sample.Kind)
		// A record of a group that the limit cut off does not count.
		case spec < 0 && s.cut[id.Spec] && (err != nil || !s.wanted[id]):
			read.Records--
			continue
		case err != nil:
			s.bad(r, err)
			continue
		case s.from.Whole(r.Kind) && s.from.LineageKind(id.Spec) == "":
			if err := f(id, []record.Record{r}); err != nil {
				return err
			}
			continue
		}
		// Remember the group, so that its other records are read as well.
		if spec >= 0 && s.limit > 0 {
			s.wanted[id] = true
		}
		if err := kept.add(id.Name, []byte{byte(id.Spec)}, []byte(r.Kind), []byte(r.Key), r.Doc); err != nil {
			return err
		}
	}
}

// groupOf returns the group of a source record, by name or by content.
func groupOf(d transform.Direction, r record.Record) (transform.GroupID, bool, error) {
	id, ok, err := d.GroupOf(r.Kind, r.Key)
	if ok && err == nil && d.LineageKind(id.Spec) != "" {
		id.Name, err = d.ContentOf(r)
	}
	return id, ok, err
}

// run transforms a group like the engine. It passes the complement only on request, and does not
// transform an empty group.
func run(d transform.Direction, id transform.GroupID, src, have []record.Record) ([]record.Record, error) {
	// The engine does not call a transformer for an empty group either.
	if len(src) == 0 {
		return nil, nil
	}
	if !d.NeedsHave(id) {
		have = nil
	}
	out, err := d.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name, Records: have})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// sortedIDs returns groups in a stable order, so that reports are reproducible.
func sortedIDs(groups map[transform.GroupID][]record.Record) []transform.GroupID {
	return slices.SortedFunc(maps.Keys(groups), func(a, b transform.GroupID) int {
		return cmp.Or(cmp.Compare(a.Spec, b.Spec), strings.Compare(a.Name, b.Name))
	})
}
