package verify

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Report is what a whole comparison found.
type Report struct {
	Compared   int64    `json:"compared"`
	Mismatched int64    `json:"mismatched"`         // and not waived
	Examples   []string `json:"examples,omitempty"` // up to ten names of differing groups

	// What differs, and is known to: it was waived.
	Waived         int64    `json:"waived,omitempty"`
	WaivedExamples []string `json:"waivedExamples,omitempty"` // up to ten

	// Of Mismatched, what is not parked, and up to ten names of it.
	Unparked         int64    `json:"-"`
	UnparkedExamples []string `json:"-"`

	// Shapes are the indexes and options that differ, and Lacks those that the version that was left
	// cannot have; for people, each with its collection.
	Shapes []string `json:"shapes,omitempty"`
	Lacks  []string `json:"lacks,omitempty"`

	// How far a comparison is that still runs.
	Doing   string `json:"-"`
	Scanned int64  `json:"-"` // records read so far
	Total   int64  `json:"-"` // that are to be read, estimated; 0: not known
}

// mostExamples is how many names of a sort a report has.
const mostExamples = 10

// Recheck bounds how often, and how far apart, a differing group is compared again before
// it counts as mismatched. One that is waived is compared again once.
type Recheck struct {
	Tries  int           // 20
	Every  time.Duration // 250 ms
	Waived Waived
	Parked Waived // and not waived: it differs, and is known to
}

// Run compares everything: all source kinds, then the target kinds for groups that the
// source does not have, unless that is found with the former. Groups that differ are compared again until they agree or
// s.Tries is used up. progress, if not nil, is called with the running report.
func (c *Comparer) Run(ctx context.Context, src, dst transform.View, s Recheck, progress func(Report)) (Report, error) {
	if s.Tries == 0 {
		s.Tries = 20
	}
	if s.Every == 0 {
		s.Every = 250 * time.Millisecond
	}
	var rep Report
	var differ []transform.GroupID
	size := 0
	var orphans []transform.Orphan
	seen := map[transform.GroupID]bool{} // a group has pages of several kinds, of both sides
	walk := func(kinds []record.KindSpec, syncs func(transform.Direction, string) bool, page func(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error)) error {
		for _, k := range kinds {
			if !syncs(c.dir, k.Name) {
				continue
			}
			for rest, done := (record.Range{}), false; !done; {
				p, err := page(ctx, src, dst, k.Name, rest, pageSize)
				if err != nil {
					return err
				}
				rest, done = p.Next, p.Done
				rep.Compared += int64(p.Compared)
				rep.Doing, rep.Scanned = "compares", rep.Scanned+int64(p.Scanned)
				orphans = append(orphans, p.Orphans...)
				for _, id := range p.Differ {
					if !seen[id] {
						seen[id] = true
						differ = append(differ, id)
						size += len(id.Name)
					}
				}
				for _, x := range p.Orphans {
					size += len(x.Key)
				}
				if progress != nil {
					progress(rep)
				}
				if len(differ)+len(orphans) > maxDiffering || size > maxDifferingBytes {
					rep.Mismatched, rep.Unparked = int64(len(differ)+len(orphans)), int64(len(differ)+len(orphans))
					return fmt.Errorf("%d groups differ and more: the target is not in sync with the source", len(differ)+len(orphans))
				}
			}
		}
		return nil
	}
	if err := walk(c.dir.SourceKinds(), transform.SyncsFrom, c.SourcePage); err != nil {
		return rep, fmt.Errorf("verify: %w", err)
	}
	if err := walk(c.dir.TargetKinds(), transform.SearchedTo, c.TargetPage); err != nil {
		return rep, fmt.Errorf("verify: %w", err)
	}
	if progress != nil && len(differ) > 0 {
		progress(Report{Compared: rep.Compared, Mismatched: int64(len(differ)), Doing: "compares again what differs"})
	}
	rep.Doing = ""
	rep, err := c.recheck(ctx, src, dst, s, rep, differ)
	// An orphan does not go away: nothing that follows the source writes it or takes it
	// away.
	for _, x := range orphans {
		name := fmt.Sprintf("%s %s (in the target alone)", x.Kind, x.Key)
		if s.Waived.Orphans[Name{x.Kind, x.Key.String()}] {
			rep.note(name)
			continue
		}
		rep.Mismatched++
		if len(rep.Examples) < mostExamples {
			rep.Examples = append(rep.Examples, name)
		}
		if !s.Parked.Orphans[Name{x.Kind, x.Key.String()}] {
			rep.unparked(name)
		}
	}
	return rep, err
}

func (r *Report) unparked(name string) {
	r.Unparked++
	if len(r.UnparkedExamples) < mostExamples {
		r.UnparkedExamples = append(r.UnparkedExamples, name)
	}
}

const (
	pageSize          = 2000
	maxDiffering      = 100_000  // bounds memory
	maxDifferingBytes = 32 << 20 // of their names, likewise
)

func (c *Comparer) recheck(ctx context.Context, src, dst transform.View, s Recheck, rep Report, differ []transform.GroupID) (Report, error) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for try := 0; len(differ) > 0 && try < s.Tries; try++ {
		var left []transform.GroupID
		for from := 0; from < len(differ); from += pageSize {
			ds, err := c.Groups(ctx, src, dst, differ[from:min(from+pageSize, len(differ))])
			if err != nil {
				return rep, fmt.Errorf("verify again: %w", err)
			}
			behind, err := c.leftBehind(ctx, src, dst, s.Waived, ds)
			if err != nil {
				return rep, fmt.Errorf("verify again: %w", err)
			}
			for _, d := range ds {
				if name := c.nameOf(d.ID); s.Waived.group(d, name) || behind[d.ID] {
					rep.note(name.Key)
				} else {
					left = append(left, d.ID)
				}
			}
		}
		differ = left
		if len(differ) == 0 || try == s.Tries-1 {
			break
		}
		select {
		case <-ctx.Done():
			return rep, ctx.Err()
		case <-tick.C:
		}
	}
	rep.Mismatched = int64(len(differ))
	for i, id := range differ {
		name := c.nameOf(id)
		if i < mostExamples {
			rep.Examples = append(rep.Examples, name.Key)
		}
		if !s.Parked.group(transform.Difference{ID: id, Failed: true}, name) {
			rep.unparked(name.Key)
		}
	}
	return rep, nil
}

// nameOf is what people find a group by: a group's own name need not be readable.
func (c *Comparer) nameOf(id transform.GroupID) Name {
	for _, s := range append(c.dir.SourceSelect(id), c.dir.TargetSelect(id)...) {
		return Name{s.Kind, s.Key.String()}
	}
	return Name{"", id.Name}
}
