// Hashing, encoding and compression: MessageDigest, Mac, CRC32, Base64, HexFormat, Deflater, AES.
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HexFormat;
import java.util.zip.Adler32;
import java.util.zip.CRC32;
import java.util.zip.Checksum;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;
import javax.crypto.Cipher;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Hashing {
    private static final String FOX = "The quick brown fox jumps over the lazy dog";
    private static final HexFormat HEX = HexFormat.of();

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String digest(String algorithm, String text) throws GeneralSecurityException {
        return HEX.formatHex(MessageDigest.getInstance(algorithm).digest(bytes(text)));
    }

    static String checksum(Checksum checksum, String text) {
        checksum.update(bytes(text));
        return String.format("%08x", checksum.getValue());
    }

    public static void main(String[] args) throws GeneralSecurityException, DataFormatException {
        System.out.println("crc32   " + checksum(new CRC32(), "123456789"));
        System.out.println("adler32 " + checksum(new Adler32(), "Wikipedia"));
        System.out.println("md5     " + digest("MD5", FOX));
        System.out.println("sha1    " + digest("SHA-1", "abc"));
        System.out.println("sha256  " + digest("SHA-256", "abc"));
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(bytes("key"), "HmacSHA256"));
        System.out.println("hmac    " + HEX.formatHex(mac.doFinal(bytes(FOX))));

        // FIPS 197, appendix C.1.
        Cipher aes = Cipher.getInstance("AES/ECB/NoPadding");
        aes.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(HEX.parseHex("000102030405060708090a0b0c0d0e0f"), "AES"));
        System.out.println("aes     " + HEX.formatHex(aes.doFinal(HEX.parseHex("00112233445566778899aabbccddeeff"))));

        for (String text : new String[] {"f", "fo", "foo", "foobar"}) {
            String encoded = Base64.getEncoder().encodeToString(bytes(text));
            System.out.println(text + " " + encoded + " " + new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8));
        }
        System.out.println("hashCode " + FOX.substring(0, 3).hashCode() + " " + "Aa".hashCode() + " " + "BB".hashCode());

        byte[] plain = bytes(FOX.repeat(1000));
        byte[] packed = new byte[plain.length];
        Deflater deflater = new Deflater(Deflater.BEST_COMPRESSION);
        deflater.setInput(plain);
        deflater.finish();
        int size = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, size);
        byte[] restored = new byte[plain.length];
        inflater.inflate(restored);
        inflater.end();
        System.out.println("smaller: " + (size < 1000) + ", intact: " + MessageDigest.isEqual(plain, restored));
    }
}
