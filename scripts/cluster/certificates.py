"""An authority, and the certificates that it signs, by openssl."""

import os

from network import run

DAYS = "30"
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """A certificate authority whose files are in a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.certificate, self.key = self.path("authority.pem"), self.path("authority.key")
        subject = ["-subj", "/CN=authority of the cluster"]
        run("openssl", "req", "-x509", *CURVE, *subject, "-days", DAYS, "-keyout", self.key, "-out", self.certificate)

    def path(self, name):
        """The path of a file of the authority."""
        return os.path.join(self.directory, name)

    def sign(self, certificate, key, subject, names):
        """Makes a key, and a certificate for it with the names, such as DNS:host or IP:10.0.0.1, if there are any."""
        request, extensions = certificate + ".request", certificate + ".extensions"
        with open(extensions, "w", encoding="ascii") as file:
            file.write("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
            if names:
                file.write(f"subjectAltName={','.join(names)}\n")
        run("openssl", "req", "-new", *CURVE, "-subj", f"/CN={subject}", "-keyout", key, "-out", request)
        signs = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", DAYS]
        run("openssl", "x509", "-req", "-in", request, *signs, "-extfile", extensions, "-out", certificate)
