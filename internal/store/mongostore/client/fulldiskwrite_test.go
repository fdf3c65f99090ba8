package client

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// TestFullDiskOfAWrite: a client learns that a write that found no room may succeed later.
func TestFullDiskOfAWrite(t *testing.T) {
	t.Parallel()
	const said = "available disk space of 370827264 bytes is less than required minimum of 524288000"
	written := refusalOf(statement{}, &mongo.WriteError{Code: conn.CodeOutOfDiskSpace, Message: said})
	if !errors.Is(written, record.ErrUnavailable) || errors.Is(written, record.ErrRefused) || !conn.IsUnavailable(written) {
		t.Errorf("%v: unavailable %v, refused %v", written, errors.Is(written, record.ErrUnavailable), errors.Is(written, record.ErrRefused))
	}
}
