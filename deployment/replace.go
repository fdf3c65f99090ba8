package deployment

import (
	"context"
	"encoding/json"
	"fmt"

	"dbcontroller/coord"
	"dbcontroller/upgradestate"
)

// Replace stores a record that was made by other means than a transition, in place of the
// one of a revision; 0: there is none. ErrOwnership says that it is another one by now.
// What is kept of directions in earlier epochs stays, and nobody looks at it.
func (s *Store) Replace(ctx context.Context, d upgradestate.Deployment, revision int64, by, at string) error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	d = upgradestate.Note(d, d, by, at)
	value, err := json.Marshal(d)
	if err == nil {
		err = upgradestate.Validate(d)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.name, err)
	}
	_, err = s.coord.Commit(ctx,
		[]coord.Condition{{Key: s.recordKey(), Revision: revision}},
		[]coord.Op{{Key: s.recordKey(), Value: value}, {Key: indexKey(s.cfg.Prefix, s.name)}})
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.name, err)
	}
	return nil
}
