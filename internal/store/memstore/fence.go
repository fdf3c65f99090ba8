package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
)

// Prepare chooses the class: FenceUUID for managed kinds, and Options.FixedFence for fixed-name
// ones. It returns FenceWriteBlock only on request.
func (s *Store) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	col, err := s.open(ctx, tok, s.resolve)
	if err != nil {
		return "", "", err
	}
	defer s.cluster.mu.Unlock()
	// Without a wish, take the strongest class.
	class := want
	if class == "" {
		class = s.cluster.opts.FixedFence
		if !tok.Fixed {
			class = record.FenceUUID
		}
	}
	switch class {
	case record.FenceUUID, record.FenceWriteBlock:
	case record.FenceView:
		if !tok.Fixed || s.cluster.opts.FixedFence == record.FenceValidator {
			return "", "", &record.UnsupportedError{What: "fence of " + tok.Name, Reason: "a view is not possible here"}
		}
	case record.FenceValidator:
		// Unfence must put the application's own validator back.
		restore, err := col.validator.restoreText()
		return class, restore, err
	default:
		return "", "", &record.UnsupportedError{What: "fence of " + tok.Name, Reason: fmt.Sprintf("unknown class %q", class)}
	}
	return class, "", nil
}

// Fence executes or confirms the announced operation.
func (s *Store) Fence(ctx context.Context, f record.Fence) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.identified(f.Token)
	if err != nil {
		return fmt.Errorf("fence to %s: %w", f.To, err)
	}
	// End the earlier fence first, so that a late Uphold does not restore it after this operation.
	if f.Ends != "" {
		col.close(f.Ends)
	}
	if f.Standing && !s.stands(f, col) {
		return fmt.Errorf("fence to %s: %w", f.To, record.ErrLapsed)
	}
	switch {
	case f.Renames():
		return s.fenceByRename(f, col)
	case f.Class == record.FenceValidator:
		if col.mark != f.To {
			col.validator, col.mark = &validator{Nothing: true}, f.To
		}
		// As in MongoDB, a repeated call only confirms the fence, but its marker comes again.
		s.logMark(col, f.To)
	case f.Class == record.FenceWriteBlock:
		s.cluster.blocked[col.id] = f.To
		s.logMark(col, f.To)
	}
	if f.Ends != "" {
		col.endAllAppliers()
	}
	return nil
}

// endAllAppliers ends the appliers of all fences that have ended. A seal may have died before it
// ended its predecessor.
func (c *collection) endAllAppliers() {
	for mark := range c.closed {
		c.endAppliers(mark)
	}
}

// endAppliers ensures that appliers with a mark can no longer write (record.Token.Mark).
func (c *collection) endAppliers(mark string) {
	if c.ended == nil {
		c.ended = map[string]bool{}
	}
	c.ended[mark] = true
}

// stands reports whether a fence is in force.
func (s *Store) stands(f record.Fence, col *collection) bool {
	switch f.Class {
	case record.FenceValidator:
		return col.mark == f.To
	case record.FenceWriteBlock:
		return s.cluster.blocked[col.id] == f.To
	default:
		return col.name == f.To
	}
}

// fenceByRename renames only from the announced name. If the collection has any other name except
// To, this fence is an old one that arrived late, and must not move the kind back.
func (s *Store) fenceByRename(f record.Fence, col *collection) error {
	if col.name != f.To {
		if col.name != f.Token.Name {
			return fmt.Errorf("fence %s to %s: it is at %s: %w", f.Token.Name, f.To, col.name, record.ErrFenced)
		}
		if col.closed[f.To] {
			return fmt.Errorf("fence %s to %s: it was abandoned; a new attempt needs a new name", f.Token.Name, f.To)
		}
		// A rename must never replace another collection.
		if s.db.byName[f.To] != nil || (s.db.views[f.To] != nil && s.db.views[f.To] != col) {
			return fmt.Errorf("fence %s to %s: the name is taken", f.Token.Name, f.To)
		}
		// The kind returns to a name where its own fence left a view.
		delete(s.db.views, f.To)
		s.cluster.rename(s.db, col, f.To)
	}
	if f.Class == record.FenceView {
		s.db.views[f.Token.Name] = col
	}
	return nil
}

// Prevent resolves an announced rename.
func (s *Store) Prevent(ctx context.Context, f record.Fence) (moved bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.identified(f.Token)
	if err != nil {
		return false, fmt.Errorf("prevent %s: %w", f.To, err)
	}
	switch {
	case f.Class != record.FenceUUID && f.Class != "":
		return false, fmt.Errorf("prevent %s: a fence of class %s is removed instead", f.To, f.Class)
	case col.name == f.To:
		return true, nil
	case col.name != f.Token.Name:
		return false, fmt.Errorf("prevent %s: it is at %s: %w", f.To, col.name, record.ErrFenced)
	}
	// The rename has not happened. Close its name, so that a late Fence fails.
	col.close(f.To)
	return false, nil
}

// close ensures that the fence to a name can no longer be set, and that Uphold no longer restores
// the fence with this name or mark.
func (c *collection) close(to string) {
	if c.closed == nil {
		c.closed = map[string]bool{}
	}
	c.closed[to] = true
}

// Ready does nothing, because no operation takes long here.
func (s *Store) Ready(ctx context.Context, _ []record.Fence) error { return s.nothing(ctx) }

// Unready does nothing, like Ready.
func (s *Store) Unready(ctx context.Context, _ []record.Fence) error { return s.nothing(ctx) }

func (s *Store) nothing(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.cluster.mu.Unlock()
	return nil
}

// Hindrances returns the texts set with Hinder. Index builds are immediate here and hinder nothing.
func (s *Store) Hindrances(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	var found []record.Hindrance
	for _, tok := range toks {
		if what := s.cluster.hindrances[tok.Kind]; what != "" {
			found = append(found, record.Hindrance{Kind: tok.Kind, What: what})
		}
	}
	return found, nil
}

// Uphold restores a fence that somebody removed.
func (s *Store) Uphold(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.identified(f.Token)
	if err != nil {
		return nil, fmt.Errorf("uphold %s: %w", f.To, err)
	}
	// The fence has ended or there is none: the application may own the kind again.
	if f.To == "" || col.closed[f.To] {
		return nil, nil
	}
	var found []record.Breach
	own := f.Token.Kind
	switch f.Class {
	case record.FenceView:
		// Whatever now bears the kind's own name decides what happened to the view.
		orphan := s.db.byName[own]
		switch {
		// That collection is a kind itself, so leave it and its name alone.
		case orphan != nil && orphan != col && slices.Contains(known, orphan.id):
			return nil, nil
		case orphan == nil && s.db.views[own] != nil:
		case orphan == nil:
			found = append(found, record.Breach{What: "the view was removed"})
			if !f.Look {
				s.db.views[own] = col
			}
		case orphan == col:
			found = append(found, record.Breach{What: "the collection got its name back"})
			if !f.Look {
				s.cluster.rename(s.db, col, f.To)
				s.db.views[own] = col
			}
		default:
			// Never drop this collection: it may hold acknowledged writes. It stays as evidence.
			s.cluster.rename(s.db, orphan, asidePrefix+own+"."+orphan.id)
			s.db.views[own] = col
		}
	case record.FenceValidator:
		if col.mark != f.To {
			found = append(found, record.Breach{What: "the validator was removed"})
			if !f.Look {
				col.validator, col.mark = &validator{Nothing: true}, f.To
				s.logMark(col, f.To)
			}
		}
	case record.FenceWriteBlock:
		if s.cluster.blocked[col.id] != f.To {
			found = append(found, record.Breach{What: "the write block was removed"})
			if !f.Look {
				s.cluster.blocked[col.id] = f.To
			}
		}
	}
	// Report collections that were set aside earlier, too.
	for name, aside := range s.db.byName {
		if !strings.HasPrefix(name, asidePrefix+own+".") {
			continue
		}
		count := int64(0)
		for _, r := range aside.rows {
			if r.states[len(r.states)-1].live() {
				count++
			}
		}
		found = append(found, record.Breach{What: "a collection was created under the name", Aside: name, Count: count})
	}
	return found, nil
}

// asidePrefix is the name prefix of collections that Uphold set aside.
const asidePrefix = "dbc_aside."

// Hinder sets the text that Hindrances returns for a kind. "" removes it.
func (s *Store) Hinder(kind, what string) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.cluster.hindrances == nil {
		s.cluster.hindrances = map[string]string{}
	}
	s.cluster.hindrances[kind] = what
}

// Unfence gives a fixed-name kind back to its application.
func (s *Store) Unfence(ctx context.Context, f record.Fence) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	if f.Class == record.FenceUUID || f.Class == "" {
		return nil
	}
	col, err := s.identified(f.Token)
	if err != nil && f.Token.ID != "" && s.db.byID[f.Token.ID] == nil {
		return nil // the application dropped the collection, so nothing is left to give back
	}
	if err != nil {
		return fmt.Errorf("unfence: %w", err)
	}
	col.close(f.To)
	if f.Ends != "" {
		col.endAllAppliers()
	}
	switch f.Class {
	case record.FenceView:
		if s.db.views[f.Token.Name] == col {
			// The view must go before the collection can have its name again.
			delete(s.db.views, f.Token.Name)
		}
		if col.name == f.To {
			if s.db.byName[f.Token.Name] != nil {
				return fmt.Errorf("unfence: the name %s is taken", f.Token.Name)
			}
			s.cluster.rename(s.db, col, f.Token.Name)
		}
	case record.FenceValidator:
		// Another fence is in force by now, so this one has nothing to give back.
		if col.mark != f.To {
			return nil
		}
		own, err := parseRestore(f.Restore)
		if err != nil {
			return fmt.Errorf("unfence: %w", err)
		}
		col.validator, col.mark = own, ""
	case record.FenceWriteBlock:
		delete(s.cluster.blocked, col.id)
	}
	return nil
}

// Locate returns the present name of a collection.
func (s *Store) Locate(ctx context.Context, id string) (string, error) {
	if err := s.begin(ctx); err != nil {
		return "", err
	}
	defer s.cluster.mu.Unlock()
	col := s.db.byID[id]
	if col == nil {
		return "", fmt.Errorf("collection %s: %w", id, record.ErrNotFound)
	}
	return col.name, nil
}

// identified returns the collection of a token under any name.
func (s *Store) identified(tok record.Token) (*collection, error) {
	col := s.db.byID[tok.ID]
	if tok.ID == "" {
		col = s.db.byName[tok.Name]
	}
	if col == nil {
		return nil, fmt.Errorf("collection %s (%s): %w", tok.Name, tok.ID, record.ErrNotFound)
	}
	return col, nil
}

func (s *Store) logMark(col *collection, mark string) {
	s.cluster.clock++
	s.cluster.append(entry{db: s.db, collection: col.name, id: col.id, mark: mark})
}
