package identity

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller/record"
)

// Belongs refuses a version's database, before anything uses it, that is not the one that the
// deployment means, or is of another time. Where there is no such deployment, which ds
// reports by the error absent, nothing of it may have lived there.
func Belongs(ctx context.Context, ds Deployments, absent error, deployment, version string, db record.Marker) error {
	mine := map[string]record.Marker{version: db}
	err := Check(ctx, ds, mine)
	if errors.Is(err, absent) {
		err = Unlived(ctx, deployment, mine)
	}
	var mismatch *MismatchError
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.As(err, &mismatch):
		return &MismatchError{Found: mismatch.Found} // whose it is, the caller adds
	default:
		return fmt.Errorf("%w: %w", record.ErrUnavailable, err) // neither database nor etcd refused
	}
}
