package sink

import (
	"context"
	"maps"
	"slices"
	"time"

	"dbcontroller.dev/record"
)

// Report is the result of Verify.
type Report struct {
	Records int64 // of the source, as read
	Entries int64 // of the sink, without tombstones
	// Differences are the first differences found, at most 100. Found counts all.
	Differences []Difference
	Found       int64
}

// Difference is one record that the sink does not have as it is.
type Difference struct {
	Kind, Name string
	// What is "missing", "outdated", or "extra": the sink has a record that does not exist.
	What string
}

const (
	maxDifferences = 100
	rechecks       = 3 // comparisons of a record before it counts as different
)

// Verify compares the documents of all records with the sink. Changes go on meanwhile, so a
// record counts as different only if it still is once the sink is level with the moment after it
// was read.
func (f *Follower) Verify(ctx context.Context) (Report, error) {
	var r Report
	if err := f.Wait(ctx, time.Now()); err != nil {
		return r, err
	}
	for _, kind := range slices.Sorted(maps.Keys(f.cfg.Kinds)) {
		if err := f.verifyRecords(ctx, kind, &r); err != nil {
			return r, err
		}
		if err := f.verifyEntries(ctx, kind, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

// verifyRecords finds records that the sink lacks or has with another document.
func (f *Follower) verifyRecords(ctx context.Context, kind string, r *Report) error {
	for from, done := record.Cursor(nil), false; !done; {
		// A page from before the sink's position would lack what the sink has.
		page, err := f.source.Scan(ctx, kind, from, pageSize, f.position())
		if err != nil {
			return err
		}
		from, done = page.Next, page.Done
		var names []string
		for _, rec := range page.Records {
			if name, named := rec.Key.Name(); named {
				names = append(names, name)
			}
		}
		r.Records += int64(len(names))
		if err := f.compare(ctx, kind, names, page.Records, r); err != nil {
			return err
		}
	}
	return nil
}

// verifyEntries finds entries without a record.
func (f *Follower) verifyEntries(ctx context.Context, kind string, r *Report) error {
	for after, more := "", true; more; {
		entries, err := f.sink.Entries(ctx, kind, after, pageSize)
		if err != nil {
			return err
		}
		more = len(entries) == pageSize
		var names []string
		for _, e := range entries {
			if after = e.Name; !e.Dead {
				names = append(names, e.Name)
			}
		}
		r.Entries += int64(len(names))
		recs, err := f.records(ctx, kind, names)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, rec := range recs {
			name, _ := rec.Key.Name()
			there[name] = true
		}
		// verifyRecords has compared those that exist.
		if err := f.compare(ctx, kind, slices.DeleteFunc(names, func(n string) bool { return there[n] }), nil, r); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the named records, of which recs exist, and adds the differences to r.
func (f *Follower) compare(ctx context.Context, kind string, names []string, recs []record.Record, r *Report) error {
	for attempt := 1; len(names) > 0; attempt++ {
		entries, err := f.sink.Lookup(ctx, kind, names)
		if err != nil {
			return err
		}
		found := f.differences(kind, names, recs, entries)
		if len(found) == 0 {
			return nil
		}
		if attempt > rechecks {
			r.Found += int64(len(found))
			r.Differences = append(r.Differences, found[:min(len(found), maxDifferences-len(r.Differences))]...)
			return nil
		}
		// The records may have changed since they were read, and the sink since they changed.
		if err := f.Wait(ctx, time.Now()); err != nil {
			return err
		}
		names = names[:0:0]
		for _, d := range found {
			names = append(names, d.Name)
		}
		if recs, err = f.records(ctx, kind, names); err != nil {
			return err
		}
	}
	return nil
}

// records reads the named records as they are now.
func (f *Follower) records(ctx context.Context, kind string, names []string) ([]record.Record, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var sels []record.Selector
	for _, name := range names {
		sels = append(sels, record.Selector{Kind: kind, Key: record.StringKey(name)})
	}
	snap, err := f.source.Read(ctx, sels, f.position())
	return snap.Records, err
}

// position returns the version up to which the sink has the changes.
func (f *Follower) position() record.Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Position.At
}

// differences compares records with their entries.
func (f *Follower) differences(kind string, names []string, recs []record.Record, entries []Entry) (out []Difference) {
	want := map[string]Digest{}
	for _, rec := range recs {
		if name, _ := rec.Key.Name(); rec.Doc != nil || rec.Err != nil {
			want[name] = f.digest(rec)
		}
	}
	have := map[string]Digest{}
	for _, e := range entries {
		if !e.Dead {
			have[e.Name] = e.Digest
		}
	}
	for _, name := range names {
		wanted, there := want[name]
		had, in := have[name]
		switch {
		case there && !in:
			out = append(out, Difference{kind, name, "missing"})
		case !there && in:
			out = append(out, Difference{kind, name, "extra"})
		case there && wanted != had:
			out = append(out, Difference{kind, name, "outdated"})
		}
	}
	return out
}

// digest returns the digest of the document that item writes for a record.
func (f *Follower) digest(rec record.Record) Digest {
	doc, err := Document(nil), rec.Err
	if err == nil {
		doc, err = f.cfg.Kinds[rec.Kind](rec)
	}
	if err != nil || doc == nil {
		doc = Document{}
	}
	return doc.Digest()
}
