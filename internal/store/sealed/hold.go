package sealed

import (
	"context"
	"slices"

	"dbcontroller.dev/record"
)

// Hold makes the database itself refuse documents under other keys than the State's. That applies
// from its return on, to any process and however late. The database also accepts the keys in also,
// which the State is about to name.
//
// Others may change the State meanwhile and call Hold for their own change. A process that paused
// must not undo that. So Hold reads the State again afterwards, and repeats its work if the key
// differs. The second read follows a successful write, so the present primary answers it.
func (n *Namespace) Hold(ctx context.Context, toks []record.Token, also ...string) error {
	for {
		st, err := n.sealer.look(ctx, 0)
		if err != nil {
			return err
		}
		// The present key must stay allowed, or writers would fail before the State changes.
		if err := n.Require(ctx, toks, wanted(append(slices.Clone(also), st.Key)...)); err != nil {
			return err
		}
		now, err := n.sealer.look(ctx, 0)
		if err != nil || now.Key == st.Key {
			return err
		}
	}
}
