package verify

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Report is the result of a whole comparison.
type Report struct {
	Compared   int64    `json:"compared"`
	Mismatched int64    `json:"mismatched"`         // without waived groups
	Examples   []string `json:"examples,omitempty"` // up to ten names of differing groups

	// Waived counts the known differences that an operator has accepted.
	Waived         int64    `json:"waived,omitempty"`
	WaivedExamples []string `json:"waivedExamples,omitempty"` // up to ten names

	// Unparked counts the mismatched groups that are not parked, with up to ten names.
	Unparked         int64    `json:"-"`
	UnparkedExamples []string `json:"-"`

	// Shapes are the differing indexes and options. Lacks are the ones that the abandoned version
	// cannot have. Both are texts for operators, each with its collection.
	Shapes []string `json:"shapes,omitempty"`
	Lacks  []string `json:"lacks,omitempty"`

	// Doing, Scanned and Total show the progress of a running comparison.
	Doing   string `json:"-"`
	Scanned int64  `json:"-"` // records read so far
	Total   int64  `json:"-"` // estimated records to read; 0: unknown
}

// mostExamples is the maximum of each list of names in a report.
const mostExamples = 10

// Recheck configures the repeated comparison of a differing group before it counts as mismatched. A
// waived group is compared again only once. Zero values mean the defaults.
type Recheck struct {
	Tries  int           // default 20
	Every  time.Duration // default 250 ms
	Waived Waived
	Parked Waived // parked and not waived: a known difference
}

// Run compares everything: first all source kinds, then the target kinds for groups that the source
// lacks. It compares differing groups again until they agree or s.Tries is used up. It calls
// progress, if not nil, with the running report. It returns an error if too many groups differ; the
// report then counts the ones found.
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
	seen := map[transform.GroupID]bool{} // pages of several kinds, on both sides, may show one group
	walk := func(kinds []record.KindSpec, syncs func(transform.Direction, string) bool, page func(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error)) error {
		for _, k := range kinds {
			if !syncs(c.dir, k.Name) {
				continue
			}
			// Compare page by page. Differences are only collected, because many of them will pass.
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
				// The first pass must fit in memory. With so many differences the target is not
				// nearly in sync.
				if len(differ)+len(orphans) > maxDiffering || size > maxDifferingBytes {
					rep.Mismatched, rep.Unparked = int64(len(differ)+len(orphans)), int64(len(differ)+len(orphans))
					return fmt.Errorf("at least %d groups differ: the target is not in sync with the source", len(differ)+len(orphans))
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
		progress(Report{Compared: rep.Compared, Mismatched: int64(len(differ)), Doing: "compares the differing groups again"})
	}
	rep.Doing = ""
	rep, err := c.recheck(ctx, src, dst, s, rep, differ)
	// An orphan does not pass: no sync writes it or removes it.
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

// unparked counts a mismatched group that is not parked.
func (r *Report) unparked(name string) {
	r.Unparked++
	if len(r.UnparkedExamples) < mostExamples {
		r.UnparkedExamples = append(r.UnparkedExamples, name)
	}
}

const (
	pageSize          = 2000
	maxDiffering      = 100_000  // bounds memory
	maxDifferingBytes = 32 << 20 // of their names; bounds memory
)

// recheck compares groups again until they agree, are waived, or the tries are used up.
func (c *Comparer) recheck(ctx context.Context, src, dst transform.View, s Recheck, rep Report, differ []transform.GroupID) (Report, error) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for try := 0; len(differ) > 0 && try < s.Tries; try++ {
		// Compare again in pages: there may be many differing groups.
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
		// No wait after the last try: nothing would follow it.
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
		// A parked group cannot be transformed, so it counts like a failed one.
		if !s.Parked.group(transform.Difference{ID: id, Failed: true}, name) {
			rep.unparked(name.Key)
		}
	}
	return rep, nil
}

// nameOf returns the kind and key under which operators find a group. A group's own name may be
// unreadable.
func (c *Comparer) nameOf(id transform.GroupID) Name {
	for _, s := range append(c.dir.SourceSelect(id), c.dir.TargetSelect(id)...) {
		return Name{s.Kind, s.Key.String()}
	}
	return Name{"", id.Name}
}
