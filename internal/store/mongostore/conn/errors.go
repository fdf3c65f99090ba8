package conn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Server error codes that this package acts on.
const (
	CodeInvalidBSON         = 22
	CodeNamespaceNotFound   = 26
	CodeCursorNotFound      = 43
	CodeNamespaceExists     = 48
	CodeInvalidOptions      = 72
	codeNotImplemented      = 238
	codeMaxTimeExpired      = 50
	CodeWriteConcernTimeout = 64
	CodeWriteConflict       = 112
	CodeValidation          = 121
	CodeOplogPositionLost   = 136
	CodeViewWrite           = 166
	CodeQueryPlanKilled     = 175
	CodeSnapshotTooOld      = 239
	CodeSnapshotUnavailable = 246
	CodeTransactionTooLarge = 257
	CodeInvalidResumeToken  = 260
	CodeChangeStreamFatal   = 280
	CodeHistoryLost         = 286
	CodeUUIDMismatch        = 361
	// CodeTemporarilyUnavailable means that the storage engine had no room for the statement, or
	// rolled the transaction back to gain room. Nothing was written.
	CodeTemporarilyUnavailable = 365
	CodeWriteBlocked           = 371
	CodeTooLargeForCache       = 388
	CodeDocumentTooLarge       = 10334
	CodeResultTooLarge         = 17419 // of an update
	CodeDuplicateKey           = 11000
)

// Classify maps an error of the driver to an error of the contract. It is for commands that leave
// nothing behind when they fail: reads, and statements of a transaction that will not commit. It
// wraps errors without a counterpart as they are.
func Classify(what string, err error) error {
	err = Concealed(err)
	switch {
	case err == nil:
		return nil
	// The end of a context says nothing about the database.
	case isContext(err):
		return fmt.Errorf("%s: %w", what, err)
	case HasCode(err, CodeUUIDMismatch, CodeQueryPlanKilled):
		return fmt.Errorf("%s: %w: %w", what, record.ErrFenced, err)
	case HasCode(err, CodeTransactionTooLarge, CodeTooLargeForCache):
		return fmt.Errorf("%s: %w: %w", what, ErrTooMuch, err)
	case HasCode(err, CodeDocumentTooLarge):
		return fmt.Errorf("%s: %w: %w", what, record.ErrOversize, err)
	case HasCode(err, CodeHistoryLost, CodeOplogPositionLost, CodeInvalidResumeToken, CodeChangeStreamFatal):
		return fmt.Errorf("%s: %w: %w", what, record.ErrHistoryLost, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// ClassifyWrite is classify for commits and for writes outside transactions. Unless the server
// clearly refused it, the write may have happened, and the result is record.ErrUnknown.
func ClassifyWrite(what string, err error) error {
	if err == nil {
		return nil
	}
	if OutcomeUnknown(err) {
		return fmt.Errorf("%s: %w: %w", what, record.ErrUnknown, Concealed(err))
	}
	return Classify(what, err)
}

// severed lists the codes of lost connections, elections, shutdowns and lost shards. A router that
// loses a shard answers with one of them, for the command or for a single statement, although the
// shard may have executed the write. A member that steps down while it works does so too.
var severed = []int{
	codeHostUnreachable, codeHostNotFound, codeNoProgress, codeRemoteResultsUnavailable, codeNetworkTimeout,
	codeShutdownInProgress, codeNoHost, CodePrimarySteppedDown, codeExceededTimeLimit, codeSocketException,
	CodeNotWritablePrimary, codeInterruptedAtShutdown, codeInterruptedReplState, CodeNotPrimaryNoSecondaryOk,
	codeNotPrimaryOrSecondary,
}

// Severed reports whether an error code says nothing about the write or its document. The write may
// have happened.
func Severed(code int) bool { return slices.Contains(severed, code) }

// OutcomeUnknown reports whether a failed write may have had an effect: no answer came, a router
// lost the shard that had it, or a majority did not confirm it.
func OutcomeUnknown(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		// The context ended or the connection broke. NeverSent is no proof here: the driver sends
		// some commands again by itself, and its error of the last attempt hides that an earlier
		// one was sent.
		return true
	}
	if server.HasErrorLabel("UnknownTransactionCommitResult") {
		return true
	}
	var exception mongo.WriteException
	if errors.As(err, &exception) && exception.WriteConcernError != nil {
		return true
	}
	// A server that steps down or shuts down while it works may have executed the write.
	return mongo.IsNetworkError(err) || mongo.IsTimeout(err) || server.HasErrorLabel("RetryableWriteError") || HasCode(err, severed...)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// HasCode reports whether the server answered with one of the codes, for the command, one of its
// writes, or the write concern.
func HasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	return slices.ContainsFunc(codes, server.HasErrorCode)
}

// ErrTooMuch reports that a transaction was larger than the server accepts or has room for. Nothing
// was written.
var ErrTooMuch = fmt.Errorf("%w: the transaction is too large for the server", record.ErrOversize)

// ErrNoRoom reports that the storage engine had no room for a statement and ended the transaction.
var ErrNoRoom = errors.New("the server's cache has no room for the transaction now")

// NoRoom reports whether a full cache made the storage engine end a transaction.
func NoRoom(err error) bool {
	return err != nil && (errors.Is(err, ErrNoRoom) || strings.Contains(err.Error(), "oldest pinned transaction ID"))
}

// IsTransient reports whether a transaction failed as a whole, without effect, and can be retried.
func IsTransient(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorLabel("TransientTransactionError")
}

// duplicate describes a write that a unique index refused.
type duplicate struct {
	OnID  bool
	Index string // the index's name, or its pattern if the server does not name it
}

// DuplicateOf reads a duplicate key error from the raw answer to a command or write.
func DuplicateOf(raw bson.Raw, message string) duplicate {
	pattern, _ := raw.Lookup("keyPattern").DocumentOK()
	d := duplicate{}
	// String is recursive.
	if !rawdoc.DocTooDeep(pattern) {
		d.Index = pattern.String()
	}
	if elems, err := pattern.Elements(); err == nil && len(elems) == 1 && elems[0].Key() == "_id" {
		// A second unique index on _id alone (with another collation, for example) has another
		// name. The implicit index is always called _id_.
		d.OnID = true
	}
	// "E11000 duplicate key error collection: db.c index: email_1 dup key: {...}"
	if _, rest, ok := strings.Cut(message, " index: "); ok {
		if name, _, ok := strings.Cut(rest, " dup key:"); ok {
			d.Index = name
			d.OnID = name == "_id_"
		}
	}
	return d
}

// ConflictError is the refusal by a unique index. It leaves out the values, because errors end in
// logs.
func ConflictError(d duplicate) error {
	return fmt.Errorf("index %s: %w", d.Index, record.ErrConflict)
}

// redactError removes the secrets of the connection string from err, in case the driver quotes
// them.
func redactError(uri string, err error) error {
	text := err.Error()
	clean := strings.ReplaceAll(text, uri, "(connection string)")
	for _, secret := range secretsOf(uri) {
		clean = strings.ReplaceAll(clean, secret, "xxxxx")
	}
	if clean == text {
		return err
	}
	return errors.New(clean)
}

// secretsOf finds passwords in a connection string. It uses no parser, because the parser may have
// caused the error.
func secretsOf(uri string) []string {
	var found []string
	add := func(s string) {
		if s == "" {
			return
		}
		found = append(found, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			found = append(found, plain)
		}
	}
	// A password may contain an unescaped @, so cut at the last one.
	rest := uri
	// Decoded and encoded forms can both appear in an error.
	if _, after, ok := strings.Cut(uri, "://"); ok {
		rest = after
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			add(password)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		switch strings.ToLower(key) {
		case "tlscertificatekeyfilepassword", "sslclientcertificatekeypassword", "proxypassword", "authmechanismproperties":
			add(value)
		}
	}
	return found
}

func locationOf(hosts []string, database string) string {
	return "mongodb://" + strings.Join(hosts, ",") + "/" + database
}
