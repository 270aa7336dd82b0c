package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
)

var upload = regexp.MustCompile(`^(/v2/.+/blobs/uploads/)([0-9]+)$`)

// uploads keeps each upload in a file of the folder until it is complete. The library keeps uploads in memory, several
// times over: gigabytes for one layer with torch.
func uploads(folder string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		found := upload.FindStringSubmatch(request.URL.Path)
		if found == nil || (request.Method != http.MethodPatch && request.Method != http.MethodPut) {
			next.ServeHTTP(answer, request)
			return
		}
		path := filepath.Join(folder, "upload-"+found[2])
		size, err := add(path, request.Body)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		if request.Method == http.MethodPatch {
			answer.Header().Set("Location", request.URL.Path)
			answer.Header().Set("Range", fmt.Sprintf("0-%d", size-1))
			answer.WriteHeader(http.StatusAccepted)
			return
		}
		complete(path, size, found[1], answer, request, next)
	})
}

// add puts content at the end of a file, and returns the file's size.
func add(path string, content io.Reader) (int64, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil {
		return 0, err
	}
	return file.Seek(0, io.SeekEnd)
}

// complete hands a whole upload to the library as one request with its digest, which the library checks.
func complete(path string, size int64, to string, answer http.ResponseWriter, request *http.Request, next http.Handler) {
	defer os.Remove(path)
	file, err := os.Open(path)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	whole := request.Clone(request.Context())
	whole.Method, whole.URL.Path = http.MethodPost, to
	whole.Body, whole.ContentLength = file, size
	next.ServeHTTP(answer, whole)
}
