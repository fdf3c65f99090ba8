package memstore

import (
	"context"
	"fmt"

	"dbcontroller/record"
)

// Prepare chooses the class. Managed kinds are fenced by their identity; fixed ones as
// strongly as Options.FixedFence allows. The write block is given only on request.
func (s *Store) Prepare(ctx context.Context, tok record.Token, want record.FenceClass) (record.FenceClass, string, error) {
	if err := s.begin(ctx); err != nil {
		return "", "", err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.resolve(tok)
	if err != nil {
		return "", "", err
	}
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
		restore, err := col.validator.restoreText()
		return class, restore, err
	default:
		return "", "", &record.UnsupportedError{What: "fence of " + tok.Name, Reason: fmt.Sprintf("unknown class %q", class)}
	}
	return class, "", nil
}

// Fence performs or confirms the announced act.
func (s *Store) Fence(ctx context.Context, f record.Fence) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	col, err := s.identified(f.Token)
	if err != nil {
		return fmt.Errorf("fence to %s: %w", f.To, err)
	}
	switch {
	case f.Renames():
		return s.fenceByRename(f, col)
	case f.Class == record.FenceValidator:
		if col.mark != f.To {
			col.validator, col.mark = &validator{Nothing: true}, f.To
			s.logMark(col, f.To)
		}
	case f.Class == record.FenceWriteBlock:
		if s.cluster.blocked[col.id] != f.To {
			s.cluster.blocked[col.id] = f.To
			s.logMark(col, f.To)
		}
	}
	return nil
}

// fenceByRename renames only from the name announced. Any other place than that and To
// means that this fence is an old one, sent late: it must not move the kind back.
func (s *Store) fenceByRename(f record.Fence, col *collection) error {
	if col.name != f.To {
		if col.name != f.Token.Name {
			return fmt.Errorf("fence %s to %s: it is at %s: %w", f.Token.Name, f.To, col.name, record.ErrFenced)
		}
		if s.db.byName[f.To] != nil || (s.db.views[f.To] != nil && s.db.views[f.To] != col) {
			return fmt.Errorf("fence %s to %s: the name is taken", f.Token.Name, f.To)
		}
		delete(s.db.views, f.To)
		s.cluster.rename(s.db, col, f.To)
	}
	if f.Class == record.FenceView {
		s.db.views[f.Token.Name] = col
	}
	return nil
}

// Lift gives a fixed-name kind back to its application.
func (s *Store) Lift(ctx context.Context, f record.Fence) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.cluster.mu.Unlock()
	if f.Class == record.FenceUUID || f.Class == "" {
		return nil
	}
	col, err := s.identified(f.Token)
	if err != nil {
		return fmt.Errorf("lift: %w", err)
	}
	switch f.Class {
	case record.FenceView:
		if s.db.views[f.Token.Name] == col {
			delete(s.db.views, f.Token.Name)
		}
		if col.name == f.To {
			if s.db.byName[f.Token.Name] != nil {
				return fmt.Errorf("lift: the name %s is taken", f.Token.Name)
			}
			s.cluster.rename(s.db, col, f.Token.Name)
		}
	case record.FenceValidator:
		if col.mark != f.To {
			return nil
		}
		own, err := parseRestore(f.Restore)
		if err != nil {
			return fmt.Errorf("lift: %w", err)
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

// identified finds the collection that a token means, wherever it is now.
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
	s.cluster.append(entry{db: s.db, collection: col.name, mark: mark})
}
