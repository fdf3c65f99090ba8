package deployment

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// ParkedCount holds the numbers of parked groups that block a switch, and that are waived.
type ParkedCount struct{ Blocking, Waived int64 }

// CountParked counts the blocking and waived groups of a list.
func CountParked(list []syncer.Parked) (n ParkedCount) {
	for _, p := range list {
		switch {
		case p.Kept: // its record exists in the target, so nothing is missing
		case p.Waived:
			n.Waived++
		default:
			n.Blocking++
		}
	}
	return n
}

// NotParkedError reports that no parked record has this name, and lists some that are parked.
type NotParkedError struct {
	Kind, Key string
	Parked    []string // some of them, as kind/key
	Total     int
}

func (e *NotParkedError) Error() string {
	if e.Total == 0 {
		return fmt.Sprintf("%s/%s is not parked: no record is", e.Kind, e.Key)
	}
	more := ""
	if n := e.Total - len(e.Parked); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s/%s is not parked: parked are %s%s", e.Kind, e.Key, strings.Join(e.Parked, ", "), more)
}

// Waive lets the upgrade continue without the parked record kind/key, in the directions that are
// synced now. An unknown name is a *NotParkedError.
func (s *Store) Waive(ctx context.Context, kind, key string) (syncer.Parked, error) {
	list, err := s.ParkedNow(ctx)
	if err != nil {
		return syncer.Parked{}, fmt.Errorf("waive: %w", err)
	}
	// An overflow entry names no record, so it can be waived only with its kind.
	list = slices.DeleteFunc(list, IsOverflow)
	var waived *syncer.Parked
	// Several entries can have the same name, one for each group; waive them all.
	for _, p := range list {
		if p.Kind != kind || p.Key != key {
			continue
		}
		p.Waived = true
		err := s.updateParked(ctx, s.parkedShardPrefix(p.Direction, p.Shard)+parkedHash(p.Spec, p.Group), nil,
			func(old *storedParked) storedParked {
				// The entry may have changed since the list; keep its current state.
				if old != nil {
					p = old.Parked
					p.Waived = true
				}
				return storedParked{Parked: p}
			})
		if err != nil {
			return syncer.Parked{}, fmt.Errorf("waive: %w", err)
		}
		waived = &p
	}
	if waived != nil {
		return *waived, nil
	}
	return syncer.Parked{}, NotParked(list, kind, key)
}

// NotParked returns the error for a record that is not in a list of parked groups.
func NotParked(list []syncer.Parked, kind, key string) *NotParkedError {
	const shown = 20
	unknown := &NotParkedError{Kind: kind, Key: key, Total: len(list)}
	for _, p := range list[:min(len(list), shown)] {
		unknown.Parked = append(unknown.Parked, p.Kind+"/"+p.Key)
	}
	return unknown
}

// WaiveKind lets the upgrade continue without any parked record of a kind, now or later, in the
// directions that are synced now. It returns how many of the currently parked records no longer
// block. The waiver ends with its direction.
func (s *Store) WaiveKind(ctx context.Context, kind string) (waived int64, err error) {
	d, err := s.Get(ctx)
	if err != nil {
		return 0, fmt.Errorf("waive: %w", err)
	}
	before, err := s.ParkedOf(ctx, d)
	if err != nil {
		return 0, fmt.Errorf("waive: %w", err)
	}
	for _, dir := range Directions(d) {
		// Every writer stores the same value and nobody removes it, so there is nothing to compare.
		op := coord.Op{Key: s.parkedPrefix(dir) + waivedKinds + url.PathEscape(kind)}
		if err := s.commitOwned(ctx, nil, []coord.Op{op}); err != nil {
			return 0, fmt.Errorf("waive: %w", err)
		}
	}
	of := slices.DeleteFunc(before, func(p syncer.Parked) bool { return p.Kind != kind })
	return CountParked(of).Blocking, nil
}

// KindWaived reports whether a kind is waived in every direction that is synced now.
func (s *Store) KindWaived(ctx context.Context, d upgradestate.Deployment, kind string) (bool, error) {
	for _, dir := range Directions(d) {
		_, err := s.coord.Get(ctx, s.parkedPrefix(dir)+waivedKinds+url.PathEscape(kind))
		if errors.Is(err, coord.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up the waiver of %s: %w", kind, err)
		}
	}
	return true, nil
}
